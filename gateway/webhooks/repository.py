"""All SQL of webhooks but the outbox's. A tenant's own session sees its own rows; control's sees all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.db import SystemRead, SystemWrite
from gateway.ids import uuid7
from gateway.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from gateway.paging import ById, Order, beyond
from gateway.principal import TenantId
from gateway.webhooks.kinds import EventKind

BATCH: Final = 1_000
DELIVERIES: Order[ById] = Order("webhook-deliveries", UUID)

_DUE = text(
    """
    SELECT id, tenant_id FROM (
      SELECT id, tenant_id, next_at, row_number() OVER (PARTITION BY tenant_id ORDER BY next_at, id) AS place
      FROM webhook_deliveries WHERE state = 'waiting' AND next_at <= now()
    ) waiting
    WHERE place <= :each ORDER BY place, next_at LIMIT :most
    """
)


@dataclass(frozen=True, slots=True)
class Job:
    """A delivery that this process has taken for a while, with all that it takes to send it."""

    delivery: WebhookDelivery
    endpoint: WebhookEndpoint
    event: WebhookEvent


async def endpoints_of(session: AsyncSession, tenant: TenantId) -> list[WebhookEndpoint]:
    """Oldest first."""
    query = select(WebhookEndpoint).where(WebhookEndpoint.tenant_id == tenant).order_by(WebhookEndpoint.id)
    return list(await session.scalars(query))


async def endpoint(
    session: AsyncSession, tenant: TenantId, endpoint_id: UUID, *, lock: bool = False
) -> WebhookEndpoint | None:
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.tenant_id == tenant, WebhookEndpoint.id == endpoint_id
    )
    return (await session.scalars(query.with_for_update() if lock else query)).one_or_none()


async def delete_endpoint(session: AsyncSession, tenant: TenantId, endpoint_id: UUID) -> None:
    await session.execute(
        delete(WebhookEndpoint).where(WebhookEndpoint.tenant_id == tenant, WebhookEndpoint.id == endpoint_id)
    )


async def add_delivery(session: AsyncSession, to: WebhookEndpoint, event: UUID) -> None:
    """One event goes to one endpoint once; a second time changes nothing."""
    row = {"id": uuid7(), "tenant_id": to.tenant_id, "endpoint_id": to.id, "event_id": event}
    await session.execute(
        insert(WebhookDelivery).values(row).on_conflict_do_nothing(index_elements=["endpoint_id", "event_id"])
    )


async def deliveries(
    session: AsyncSession, endpoint_id: UUID, start: ById | None, limit: int
) -> list[tuple[WebhookDelivery, WebhookEvent]]:
    """Newest first."""
    query = (
        select(WebhookDelivery, WebhookEvent)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.endpoint_id == endpoint_id)
        .order_by(WebhookDelivery.id.desc())
        .limit(limit)
    )
    if start is not None:
        query = query.where(beyond((WebhookDelivery.id,), start, descending=True))
    return [(row[0], row[1]) for row in await session.execute(query)]


async def delivery(
    session: AsyncSession, endpoint_id: UUID, delivery_id: UUID
) -> tuple[WebhookDelivery, WebhookEvent] | None:
    """Locked until the transaction ends."""
    query = (
        select(WebhookDelivery, WebhookEvent)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.endpoint_id == endpoint_id, WebhookDelivery.id == delivery_id)
        .with_for_update(of=WebhookDelivery)
    )
    row = (await session.execute(query)).one_or_none()
    return None if row is None else (row[0], row[1])


async def num_pings(session: AsyncSession, endpoint_id: UUID, within: timedelta) -> int:
    query = (
        select(func.count())
        .select_from(WebhookDelivery)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookEvent.kind == EventKind.PING.value,
            WebhookEvent.created_at > func.now() - within,
        )
    )
    return int(await session.scalar(query) or 0)


async def add_ping(session: AsyncSession, to: WebhookEndpoint) -> UUID:
    """For this endpoint alone. Spread already, for control has nothing to choose."""
    event = uuid7()
    row = {
        "id": event,
        "tenant_id": to.tenant_id,
        "kind": EventKind.PING.value,
        "once": f"ping:{event}",
        "data": {"endpoint": str(to.id)},
        "spread_at": func.now(),
    }
    await session.execute(insert(WebhookEvent).values(row))
    await add_delivery(session, to, event)
    return event


async def unspread(session: SystemWrite, limit: int) -> list[WebhookEvent]:
    """Events that no endpoint was given yet, oldest first; locked."""
    query = (
        select(WebhookEvent)
        .where(WebhookEvent.spread_at.is_(None))
        .order_by(WebhookEvent.created_at, WebhookEvent.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return list(await session.scalars(query))


async def spread(session: SystemWrite, event: WebhookEvent) -> int:
    """A delivery for each endpoint that wants it; gives their number."""
    wants = WebhookEndpoint.kinds.is_(None) | WebhookEndpoint.kinds.contains([event.kind])
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.tenant_id == event.tenant_id, WebhookEndpoint.status == "active", wants
    )
    found = list(await session.scalars(query))
    for each in found:
        await add_delivery(session, each, event.id)
    await session.execute(
        update(WebhookEvent)
        .where(WebhookEvent.id == event.id)
        .values(spread_at=func.now())
        .execution_options(synchronize_session=False)
    )
    return len(found)


async def due(session: SystemRead, each: int, most: int) -> list[tuple[UUID, TenantId]]:
    """Deliveries whose time has come, at most `each` of a tenant, the tenants in turn."""
    rows = await session.execute(_DUE, {"each": each, "most": most})
    return [(row.id, TenantId(row.tenant_id)) for row in rows]


async def take(session: SystemWrite, wanted: Sequence[UUID], lease: timedelta) -> list[Job]:
    """Those of them that nobody else took meanwhile. They come again after the lease, unless their outcome is
    recorded: who took them may have died."""
    taken = (
        update(WebhookDelivery)
        .where(
            WebhookDelivery.id.in_(wanted),
            WebhookDelivery.state == "waiting",
            WebhookDelivery.next_at <= func.now(),
        )
        .values(next_at=func.now() + lease)
        .returning(WebhookDelivery.id)
        .execution_options(synchronize_session=False)
    )
    ids = list(await session.scalars(taken))
    query = (
        select(WebhookDelivery, WebhookEndpoint, WebhookEvent)
        .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.id.in_(ids))
        .execution_options(populate_existing=True)
    )
    return [Job(*row) for row in await session.execute(query)]


async def record_try(session: SystemWrite, delivery_id: UUID, values: dict[str, Any]) -> None:
    """Of one that is still waited for, which a disabled endpoint's is not."""
    await session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.id == delivery_id, WebhookDelivery.state == "waiting")
        .values(**values, attempts=WebhookDelivery.attempts + 1)
        .execution_options(synchronize_session=False)
    )


async def mark(session: SystemWrite, endpoint_id: UUID, *, failing: bool) -> datetime | None:
    """Since when the endpoint has failed without a success between; None for one that did not."""
    change = {
        "failing_since": func.coalesce(WebhookEndpoint.failing_since, func.now()) if failing else None,
        "updated_at": WebhookEndpoint.updated_at,  # nobody changed it
    }
    statement = update(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id)
    if not failing:
        statement = statement.where(WebhookEndpoint.failing_since.is_not(None))
    found = await session.scalars(
        statement.values(change)
        .returning(WebhookEndpoint.failing_since)
        .execution_options(synchronize_session=False)
    )
    return found.one_or_none()


async def disable(session: SystemWrite, endpoint_id: UUID, reason: str) -> bool:
    """Whether this did it. What waits for it fails."""
    done = await session.scalars(
        update(WebhookEndpoint)
        .where(WebhookEndpoint.id == endpoint_id, WebhookEndpoint.status == "active")
        .values(status="disabled", disabled_reason=reason)
        .returning(WebhookEndpoint.id)
        .execution_options(synchronize_session=False)
    )
    if done.one_or_none() is None:
        return False
    await fail_waiting(session, endpoint_id)
    return True


async def fail_waiting(session: AsyncSession, endpoint_id: UUID) -> None:
    await session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.endpoint_id == endpoint_id, WebhookDelivery.state == "waiting")
        .values(state="failed", last_error="the endpoint was disabled", finished_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def forget_deliveries(session: SystemWrite, older: timedelta) -> int:
    """A batch of those that ended so long ago; gives their number."""
    old = (
        select(WebhookDelivery.id)
        .where(WebhookDelivery.state != "waiting", WebhookDelivery.finished_at < func.now() - older)
        .limit(BATCH)
    )
    return await _deleted(session, delete(WebhookDelivery).where(WebhookDelivery.id.in_(old)))


async def forget_events(session: SystemWrite, older: timedelta) -> int:
    """A batch of events so old, with their deliveries: none of them waits so long."""
    old = select(WebhookEvent.id).where(WebhookEvent.created_at < func.now() - older).limit(BATCH)
    return await _deleted(session, delete(WebhookEvent).where(WebhookEvent.id.in_(old)))


async def all_endpoints(session: SystemRead) -> list[WebhookEndpoint]:
    return list(await session.scalars(select(WebhookEndpoint).order_by(WebhookEndpoint.id)))


async def _deleted(session: SystemWrite, statement: Any) -> int:
    done = await session.execute(statement.execution_options(synchronize_session=False))
    return int(done.rowcount)  # type: ignore[attr-defined]  # a CursorResult, as every DELETE's
