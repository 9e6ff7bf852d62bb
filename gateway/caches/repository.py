"""All SQL of a tenant's caches. Only operators change them, so sessions here are the system's."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, update

from gateway.db import SystemWrite
from gateway.models import Tenant


async def renew(session: SystemWrite, tenant: UUID, salt: str) -> Tenant | None:
    """The tenant with a new salt and its next cache epoch, and so its next epoch; None when there is none."""
    statement = (
        update(Tenant)
        .where(Tenant.id == tenant)
        .values(salt=salt, cache_epoch=Tenant.cache_epoch + 1, epoch=Tenant.epoch + 1, updated_at=func.now())
        .returning(Tenant)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalars(statement)).one_or_none()
