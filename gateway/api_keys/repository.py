"""All SQL of API keys."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, or_, select, text, update

from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.models import ApiKey, Tenant
from gateway.principal import TenantId

MAX_KEYS = 1_000  # live keys of a tenant


class Found(NamedTuple):
    key: ApiKey
    tenant: Tenant


async def find(session: SystemRead, key_id: str) -> Found | None:
    """A key with its tenant, by the key's public id; the only look-up that does not start from a tenant."""
    statement = (
        select(ApiKey, Tenant).join(Tenant, Tenant.id == ApiKey.tenant_id).where(ApiKey.key_id == key_id)
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else Found(row[0], row[1])


async def reseal(session: SystemWrite, key: UUID, sealed: bytes, version: str) -> None:
    """Move a key to the current pepper."""
    await session.execute(
        update(ApiKey).where(ApiKey.id == key).values(secret_hmac=sealed, pepper_version=version)
    )


async def touch(session: SystemWrite, key_ids: list[str], now: datetime) -> None:
    """Remember that keys were used."""
    await session.execute(
        update(ApiKey)
        .where(ApiKey.key_id.in_(key_ids), or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < now))
        .values(last_used_at=now)
        .execution_options(synchronize_session=False)
    )


async def add(session: TenantWrite, key: ApiKey) -> None:
    session.add(key)
    await session.flush()
    await session.refresh(key)


async def list_of(session: TenantRead, tenant: TenantId) -> list[ApiKey]:
    """Newest first; revoked ones too."""
    statement = (
        select(ApiKey)
        .where(ApiKey.tenant_id == tenant)
        .order_by(ApiKey.created_at.desc(), ApiKey.id)
        .limit(MAX_KEYS)
    )
    return list((await session.scalars(statement)).all())


async def count_live(session: TenantRead, tenant: TenantId) -> int:
    statement = select(func.count()).where(ApiKey.tenant_id == tenant, ApiKey.revoked_at.is_(None))
    return (await session.execute(statement)).scalar_one()


async def revoke(session: TenantWrite, tenant: TenantId, key_id: str) -> ApiKey | None:
    """The key, revoked now or earlier; None when the tenant has none of that id."""
    statement = (
        update(ApiKey)
        .where(ApiKey.tenant_id == tenant, ApiKey.key_id == key_id)
        .values(revoked_at=func.coalesce(ApiKey.revoked_at, text("now()")))
        .returning(ApiKey)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalars(statement)).one_or_none()
