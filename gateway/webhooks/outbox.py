"""An event is a row in the transaction of what it tells of. Until events are delivered, the row is one of the
tenant's audit log."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.audit.service import SYSTEM
from gateway.ids import uuid7
from gateway.models import AuditEvent
from gateway.principal import TenantId


async def publish(
    session: AsyncSession, tenant: TenantId, kind: str, data: dict[str, Any], *, once: str
) -> None:
    """Adds the event to the caller's transaction. `once` names the fact: a second event of the tenant under
    the same name is a no-op."""
    known = select(AuditEvent.id).where(
        AuditEvent.tenant_id == tenant, AuditEvent.action == kind, AuditEvent.target == once
    )
    if await session.scalar(known.limit(1)) is None:
        session.add(
            AuditEvent(
                id=uuid7(), tenant_id=tenant, actor=SYSTEM.name, action=kind, target=once, details=data
            )
        )
