"""All SQL of API keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, not_, or_, select, text, update

from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.models import ApiKey, Tenant
from gateway.paging import ByCreation, Order, beyond, starts_with
from gateway.principal import TenantId

MAX_KEYS = 1_000  # live keys of a tenant
NEWEST_FIRST: Order[ByCreation] = Order("keys", datetime, UUID)
KeyState = Literal["live", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class KeyFilters:
    """None = any."""

    state: KeyState | None = None
    name_prefix: str | None = None
    since: datetime | None = None
    until: datetime | None = None


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


async def page(
    session: TenantRead, tenant: TenantId, wanted: KeyFilters, after: ByCreation | None, limit: int
) -> list[ApiKey]:
    """Newest first; revoked ones too, unless `wanted` says otherwise."""
    statement = (
        select(ApiKey)
        .where(ApiKey.tenant_id == tenant, *_conditions(wanted))
        .order_by(ApiKey.created_at.desc(), ApiKey.id.desc())
        .limit(limit)
    )
    if after is not None:
        statement = statement.where(beyond([ApiKey.created_at, ApiKey.id], after, descending=True))
    return list((await session.scalars(statement)).all())


def _conditions(wanted: KeyFilters) -> list[ColumnElement[bool]]:
    expired = and_(ApiKey.expires_at.is_not(None), ApiKey.expires_at <= func.now())
    of_state = {
        "live": and_(ApiKey.revoked_at.is_(None), not_(expired)),
        "expired": and_(ApiKey.revoked_at.is_(None), expired),
        "revoked": ApiKey.revoked_at.is_not(None),
    }
    found: list[ColumnElement[bool]] = []
    if wanted.state is not None:
        found.append(of_state[wanted.state])
    if wanted.name_prefix is not None:
        found.append(starts_with(ApiKey.name, wanted.name_prefix))
    if wanted.since is not None:
        found.append(ApiKey.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(ApiKey.created_at < wanted.until)
    return found


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
