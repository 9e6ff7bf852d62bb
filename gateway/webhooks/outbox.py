"""The outbox: an event is a row in the transaction of what it tells of, so that neither is without the
other. Control's leader sends it (`delivery.py`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.ids import uuid7
from gateway.models import WebhookEvent
from gateway.principal import TenantId
from gateway.webhooks.kinds import EventKind

MAX_DATA_BYTES: Final = 16 * 1024
MAX_ONCE_CHARACTERS: Final = 200
KEPT_DAYS: Final = 62
"""Events are remembered for so long, and with them that they were published. Longer than two months, so
that nothing that may happen once in a month is told of twice."""


async def publish(
    session: AsyncSession, tenant: TenantId, kind: str, data: dict[str, Any], *, once: str
) -> None:
    """Adds the event to the caller's transaction: a `TenantWrite` of that tenant, or a `SystemWrite`.

    `kind` is one of `EventKind`; `data` plain JSON of at most `MAX_DATA_BYTES`, without secrets or prompts.
    `once` names the fact (as `budget.threshold:{budget}:{period}:{percent}`): a second event of the tenant
    under the same name is a no-op, whoever publishes it, for `KEPT_DAYS` days.
    """
    await add(session, tenant, EventKind(kind), data, once=once)


async def add(
    session: AsyncSession, tenant: TenantId, kind: EventKind, data: dict[str, Any], *, once: str
) -> UUID | None:
    """The event's id, or None if it was there already."""
    assert 0 < len(once) <= MAX_ONCE_CHARACTERS
    assert len(msgspec.json.encode(data)) <= MAX_DATA_BYTES
    statement = (
        insert(WebhookEvent)
        .values(id=uuid7(), tenant_id=tenant, kind=kind.value, once=once, data=data)
        .on_conflict_do_nothing(index_elements=["tenant_id", "once"])
        .returning(WebhookEvent.id)
    )
    return await session.scalar(statement)
