"""The rules of webhooks' endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import UNSET
from sqlalchemy import func

from gateway.audit.service import Actor, Change, record
from gateway.db import Database
from gateway.edits import require_match
from gateway.errors import BadRequest, Conflict, NotFound, RateLimited
from gateway.ids import uuid7
from gateway.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from gateway.paging import ById
from gateway.principal import TenantId
from gateway.webhooks import repository
from gateway.webhooks.destinations import Destination, DestinationRefused, DestinationRules
from gateway.webhooks.schemas import DeliveryOut, EndpointChange, EndpointIn, EndpointOut
from gateway.webhooks.sealed import CanNotOpen, Sealer
from gateway.webhooks.signing import SigningSecret

MAX_ENDPOINTS: Final = 16
MAX_PINGS: Final = 20
PINGS_WITHIN: Final = timedelta(hours=1)


class Sent(NamedTuple):
    """What was sent to an endpoint, and whether more is."""

    active: bool
    rows: list[tuple[WebhookDelivery, WebhookEvent]]


class Webhooks:
    """One per worker. Control sends (`delivery.py`)."""

    def __init__(self, db: Database, sealer: Sealer, rules: DestinationRules) -> None:
        self._db = db
        self._sealer = sealer
        self._rules = rules

    async def create(
        self, actor: Actor, tenant: TenantId, wanted: EndpointIn
    ) -> tuple[EndpointOut, SigningSecret]:
        """Raises `BadRequest` for a URL that webhooks may not go to, and `Conflict` for one too many."""
        to, secret = self._destination(wanted.url), SigningSecret.mint()
        endpoint = WebhookEndpoint(
            id=uuid7(),
            tenant_id=tenant,
            host=to.host,
            description=wanted.description,
            kinds=_distinct(wanted.kinds),
            status="active",
        )
        self._sealer.set_url(endpoint, to.url)
        self._sealer.set_secret(endpoint, secret)
        async with self._db.tenant_session(tenant) as session:
            if len(await repository.endpoints_of(session, tenant)) >= MAX_ENDPOINTS:
                raise Conflict(f"A tenant has at most {MAX_ENDPOINTS} webhooks. Delete one first.")
            session.add(endpoint)
            await session.flush()
            await session.refresh(endpoint)
            details = {"host": to.host, "kinds": endpoint.kinds}
            record(session, actor, Change("webhook.create", str(endpoint.id), tenant, details))
        return self._shown(endpoint), secret

    async def list_of(self, tenant: TenantId) -> list[EndpointOut]:
        """Oldest first."""
        async with self._db.tenant_reader(tenant) as session:
            return [self._shown(each) for each in await repository.endpoints_of(session, tenant)]

    async def get(self, tenant: TenantId, endpoint_id: UUID) -> EndpointOut:
        """Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            return self._shown(_existing(await repository.endpoint(session, tenant, endpoint_id)))

    async def change(
        self,
        actor: Actor,
        tenant: TenantId,
        endpoint_id: UUID,
        wanted: EndpointChange,
        if_match: str | None = None,
    ) -> EndpointOut:
        """Raises `NotFound`, `BadRequest` for a URL that webhooks may not go to, and `PreconditionFailed` for
        one that is not what `if_match` says."""
        to = None if wanted.url is UNSET else self._destination(wanted.url)
        async with self._db.tenant_session(tenant) as session:
            endpoint = _existing(await repository.endpoint(session, tenant, endpoint_id, lock=True))
            require_match(if_match, EndpointChange.fields_of(self._shown(endpoint)))
            details: dict[str, object] = {}
            if to is not None:
                endpoint.host = to.host
                self._sealer.set_url(endpoint, to.url)
                details["host"] = to.host
            if wanted.description is not UNSET:
                endpoint.description = details["description"] = wanted.description
            if wanted.kinds is not UNSET:
                endpoint.kinds = details["kinds"] = _distinct(wanted.kinds)
            if wanted.status is not UNSET and wanted.status != endpoint.status:
                endpoint.status = details["status"] = wanted.status
                endpoint.failing_since = None
                endpoint.disabled_reason = None
                if wanted.status == "disabled":
                    endpoint.disabled_reason = f"by {actor.name}"
                    await repository.fail_waiting(session, endpoint.id)
            await session.flush()
            await session.refresh(endpoint)
            if details:
                record(session, actor, Change("webhook.update", str(endpoint.id), tenant, details))
        return self._shown(endpoint)

    async def delete(self, actor: Actor, tenant: TenantId, endpoint_id: UUID) -> EndpointOut:
        """With all its deliveries. Raises `NotFound`."""
        async with self._db.tenant_session(tenant) as session:
            endpoint = _existing(await repository.endpoint(session, tenant, endpoint_id, lock=True))
            shown = self._shown(endpoint)
            await repository.delete_endpoint(session, tenant, endpoint_id)
            record(
                session,
                actor,
                Change("webhook.delete", str(endpoint_id), tenant, {"host": endpoint.host}),
            )
        return shown

    async def rotate(
        self, actor: Actor, tenant: TenantId, endpoint_id: UUID, overlap_h: int
    ) -> tuple[EndpointOut, SigningSecret]:
        """A new secret; the one before it signs too while the overlap lasts. Raises `NotFound`."""
        secret = SigningSecret.mint()
        async with self._db.tenant_session(tenant) as session:
            endpoint = _existing(await repository.endpoint(session, tenant, endpoint_id, lock=True))
            endpoint.previous_secret = endpoint.secret if overlap_h else None
            endpoint.previous_until = datetime.now(UTC) + timedelta(hours=overlap_h) if overlap_h else None
            self._sealer.set_secret(endpoint, secret)
            await session.flush()
            await session.refresh(endpoint)
            change = Change("webhook.rotate", str(endpoint_id), tenant, {"overlap_h": overlap_h})
            record(session, actor, change)
        return self._shown(endpoint), secret

    async def ping(self, actor: Actor, tenant: TenantId, endpoint_id: UUID) -> DeliveryOut:
        """Sends a `ping` to this endpoint. Raises `NotFound`, `RateLimited`, and `Conflict` for a disabled
        one."""
        async with self._db.tenant_session(tenant) as session:
            endpoint = _active(await repository.endpoint(session, tenant, endpoint_id, lock=True))
            if await repository.num_pings(session, endpoint_id, PINGS_WITHIN) >= MAX_PINGS:
                raise RateLimited(
                    f"An endpoint is pinged at most {MAX_PINGS} times an hour.",
                    retry_after_s=PINGS_WITHIN.total_seconds() / MAX_PINGS,
                )
            event = await repository.add_ping(session, endpoint)
            ((delivery, told),) = await repository.deliveries(session, endpoint_id, None, 1)
            assert told.id == event
            record(session, actor, Change("webhook.ping", str(endpoint_id), tenant))
        return DeliveryOut.of(delivery, told)

    async def deliveries(self, tenant: TenantId, endpoint_id: UUID, start: ById | None, limit: int) -> Sent:
        """Newest first. Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            endpoint = _existing(await repository.endpoint(session, tenant, endpoint_id))
            rows = await repository.deliveries(session, endpoint_id, start, limit)
        return Sent(endpoint.status == "active", rows)

    async def redeliver(
        self, actor: Actor, tenant: TenantId, endpoint_id: UUID, delivery_id: UUID
    ) -> DeliveryOut:
        """The same event under the same id once more, with all its tries. Raises `NotFound`, and `Conflict`
        for one that is on its way or whose endpoint is disabled."""
        async with self._db.tenant_session(tenant) as session:
            endpoint = _existing(await repository.endpoint(session, tenant, endpoint_id))
            found = await repository.delivery(session, endpoint_id, delivery_id)
            if found is None:
                raise NotFound("There is no such delivery.")
            _active(endpoint)
            delivery, event = found
            if delivery.state == "waiting":
                raise Conflict("It is on its way already.")
            delivery.state, delivery.finished_at = "waiting", None
            delivery.begun_at = delivery.next_at = func.now()
            await session.flush()
            await session.refresh(delivery)
            details = {"endpoint": str(endpoint_id), "event": str(event.id)}
            record(session, actor, Change("webhook.redeliver", str(delivery_id), tenant, details))
        return DeliveryOut.of(delivery, event)

    def _destination(self, url: str) -> Destination:
        try:
            return self._rules.destination(url)
        except DestinationRefused as error:
            raise BadRequest(
                f"'url' can't be a webhook's: {error}.", param="url", code="invalid_value"
            ) from error

    def _shown(self, endpoint: WebhookEndpoint) -> EndpointOut:
        try:
            url = self._sealer.url(endpoint)
        except CanNotOpen:
            url = None
        return EndpointOut.of(endpoint, url)


def _existing(endpoint: WebhookEndpoint | None) -> WebhookEndpoint:
    if endpoint is None:
        raise NotFound("There is no such webhook.")
    return endpoint


def _active(endpoint: WebhookEndpoint | None) -> WebhookEndpoint:
    found = _existing(endpoint)
    if found.status != "active":
        raise Conflict("This webhook is disabled. Make it active first.")
    return found


def _distinct(kinds: Sequence[str] | None) -> list[str] | None:
    return None if kinds is None else sorted(set(kinds))
