"""The rules of tenants."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from msgspec import UnsetType
from sqlalchemy.exc import IntegrityError

from gateway.audit.service import Actor, Change, record
from gateway.db import Database
from gateway.edits import require_match
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.limits.columns import limits_of
from gateway.models import Lifecycle, Tenant, TenantStatus
from gateway.paging import ById
from gateway.principal import Admin, Limits, Principal, Scope, TenantId
from gateway.tenants import repository
from gateway.tenants.epochs import Epochs
from gateway.tenants.repository import TenantFilters
from gateway.tenants.schemas import TenantCreate, TenantPatch
from gateway.usage.zones import UnknownZone, zone_of

SALT_BYTES = 16


class Tenants:
    def __init__(self, db: Database, epochs: Epochs) -> None:
        self._db = db
        self._epochs = epochs

    async def create(self, actor: Actor, wanted: TenantCreate) -> Tenant:
        """Raises `Conflict` when the name is taken."""
        tenant = Tenant(
            id=uuid7(),
            name=wanted.name,
            salt=secrets.token_hex(SALT_BYTES),
            share_weight=wanted.share_weight,
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            max_parallel=wanted.max_parallel,
            reporting_zone=_zone(wanted.reporting_zone) or "UTC",
        )
        try:
            async with self._db.system_session() as session:
                await repository.add(session, tenant)
                record(session, actor, Change("tenant.create", wanted.name, TenantId(tenant.id)))
        except IntegrityError as error:
            raise Conflict(f"A tenant named '{wanted.name}' exists.", param="name") from error
        await self._epochs.publish(TenantId(tenant.id), tenant.epoch)
        return tenant

    async def page(
        self,
        wanted: TenantFilters,
        after: ById | None,
        limit: int,
        only: frozenset[TenantId] | None = None,
    ) -> list[Tenant]:
        """Oldest first; `only` these, or all."""
        async with self._db.system_reader() as session:
            return await repository.page(session, wanted, after, limit, only)

    async def get(self, tenant: UUID) -> Tenant:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            return existing(await repository.find(session, tenant))

    async def change(
        self, actor: Actor, tenant: UUID, wanted: TenantPatch, if_match: str | None = None
    ) -> Tenant:
        """Limits and status; all workers act on it with the tenant's next request. Raises `NotFound`, and
        `PreconditionFailed` when it is not what `if_match` says."""
        values = wanted.changes()
        if not values:
            raise BadRequest("Name at least one field to change.")
        _zone(wanted.reporting_zone)
        async with self._db.system_session() as session:
            before = require_active(await repository.lock(session, tenant))
            require_match(if_match, TenantPatch.fields_of(before))
            columns = values | ({"suspended_for": None} if "status" in values else {})
            changed = existing(await repository.change(session, tenant, columns))
            record(session, actor, Change("tenant.update", changed.name, TenantId(tenant), values))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return changed

    async def suspend(self, actor: Actor, tenant: UUID, reason: str) -> Tenant:
        """No request of it is let in from here on; what runs ends. Raises `NotFound`, and `Conflict` for one
        that is leaving."""
        values = {"status": TenantStatus.SUSPENDED, "suspended_for": reason}
        return await self._move(
            actor, tenant, Change("tenant.suspend", "", details={"reason": reason}), values
        )

    async def resume(self, actor: Actor, tenant: UUID) -> Tenant:
        """Raises like `suspend`."""
        values = {"status": TenantStatus.ACTIVE, "suspended_for": None}
        return await self._move(actor, tenant, Change("tenant.resume", ""), values)

    async def _move(
        self, actor: Actor, tenant: UUID, change: Change, values: Mapping[str, str | None]
    ) -> Tenant:
        async with self._db.system_session() as session:
            require_active(await repository.lock(session, tenant))
            changed = existing(await repository.change(session, tenant, values))
            record(session, actor, replace(change, target=changed.name, tenant=TenantId(tenant)))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return changed

    async def require_active(self, tenant: UUID) -> None:
        """Raises `NotFound`, and `Conflict` for one that is leaving or gone."""
        require_active(await self.get(tenant))

    async def principal_for(self, admin: Admin, tenant: UUID, scopes: frozenset[Scope]) -> Principal:
        """An account acting for a tenant, with the scopes of its role. Raises `NotFound`."""
        row = await self.get(tenant)
        return Principal(
            tenant=TenantId(row.id),
            tenant_name=row.name,
            key_id=f"admin:{admin.email}",
            scopes=scopes,
            tenant_limits=limits_of(row),
            key_limits=Limits(),
            salt=row.salt,
            epoch=row.epoch,
        )


def _zone(name: str | UnsetType) -> str | None:
    """The name, when one is given. Raises `BadRequest` for one that names no zone."""
    if isinstance(name, UnsetType):
        return None
    try:
        return zone_of(name).key
    except UnknownZone as error:
        raise BadRequest(
            "'reporting_zone' is not an IANA time zone, such as Europe/Vienna.",
            param="reporting_zone",
            code="invalid_value",
        ) from error


def existing(tenant: Tenant | None) -> Tenant:
    """Raises `NotFound`."""
    if tenant is None:
        raise no_such_tenant()
    return tenant


def no_such_tenant() -> NotFound:
    """Unknown, and another's: the same answer."""
    return NotFound("There is no such tenant.")


def require_active(tenant: Tenant | None) -> Tenant:
    """Raises `NotFound`, and `Conflict` for one that is leaving or gone: nothing of it changes any more."""
    found = existing(tenant)
    if found.lifecycle != Lifecycle.ACTIVE:
        raise Conflict(f"This tenant is {found.lifecycle}.", code=f"tenant_{found.lifecycle}")
    return found
