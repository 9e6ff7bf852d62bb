"""All SQL of the audit log."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select

from gateway.db import SystemRead
from gateway.models import AuditEvent
from gateway.principal import TenantId


async def events(
    session: SystemRead, tenant: TenantId | None, before: UUID | None, limit: int
) -> list[AuditEvent]:
    """Newest first; ids are UUIDv7, so they are the order."""
    statement = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit)
    if tenant is not None:
        statement = statement.where(AuditEvent.tenant_id == tenant)
    if before is not None:
        statement = statement.where(AuditEvent.id < before)
    return list((await session.scalars(statement)).all())
