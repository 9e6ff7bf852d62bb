"""All SQL of API keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, not_, or_, select, update

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
    id_prefix: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Found(NamedTuple):
    key: ApiKey
    tenant: Tenant


class Seals(NamedTuple):
    """One secret under the pepper before, and under the current one, whose version is named."""

    old: bytes | None
    new: bytes
    version: str


async def find(session: SystemRead, key_id: str) -> Found | None:
    """A key with its tenant, by the key's public id; the only look-up that does not start from a tenant."""
    statement = (
        select(ApiKey, Tenant).join(Tenant, Tenant.id == ApiKey.tenant_id).where(ApiKey.key_id == key_id)
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else Found(row[0], row[1])


async def reseal(session: SystemWrite, key: UUID, seals: Seals, *, previous: bool) -> None:
    """Move a secret to the current pepper. Only where it still stands: a rotation that came between has put
    another one in its place."""
    sealed, version = (
        (ApiKey.previous_hmac, ApiKey.previous_pepper_version)
        if previous
        else (ApiKey.secret_hmac, ApiKey.pepper_version)
    )
    await session.execute(
        update(ApiKey)
        .where(ApiKey.id == key, sealed == seals.old)
        .values({sealed: seals.new, version: seals.version})
        .execution_options(synchronize_session=False)
    )


async def touch(session: SystemWrite, key_ids: list[str], now: datetime, *, by_previous: bool) -> None:
    """Remember that keys were used, and which by the secret that was replaced."""
    column = ApiKey.previous_used_at if by_previous else ApiKey.last_used_at
    values: dict[Any, Any] = {ApiKey.last_used_at: func.greatest(ApiKey.last_used_at, now)}
    if by_previous:
        values[ApiKey.previous_used_at] = now
    await session.execute(
        update(ApiKey)
        .where(ApiKey.key_id.in_(key_ids), or_(column.is_(None), column < now))
        .values(values)
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
    if wanted.id_prefix is not None:
        found.append(starts_with(ApiKey.key_id, wanted.id_prefix))
    if wanted.since is not None:
        found.append(ApiKey.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(ApiKey.created_at < wanted.until)
    return found


async def tenant_name(session: TenantRead, tenant: TenantId) -> str | None:
    return await session.scalar(select(Tenant.name).where(Tenant.id == tenant))


async def count_live(session: TenantRead, tenant: TenantId) -> int:
    statement = select(func.count()).where(ApiKey.tenant_id == tenant, ApiKey.revoked_at.is_(None))
    return (await session.execute(statement)).scalar_one()


async def get(session: TenantRead, tenant: TenantId, key_id: str) -> ApiKey | None:
    statement = select(ApiKey).where(ApiKey.tenant_id == tenant, ApiKey.key_id == key_id)
    return (await session.scalars(statement)).one_or_none()


async def lock(session: TenantWrite, tenant: TenantId, key_id: str) -> ApiKey | None:
    """The key as it is now, until the transaction ends."""
    statement = select(ApiKey).where(ApiKey.tenant_id == tenant, ApiKey.key_id == key_id).with_for_update()
    return (await session.scalars(statement)).one_or_none()


async def change(session: TenantWrite, key: ApiKey, values: Mapping[str, Any]) -> ApiKey:
    """The key with other columns; whoever calls holds its lock."""
    statement = (
        update(ApiKey)
        .where(ApiKey.id == key.id, ApiKey.tenant_id == key.tenant_id)
        .values(**values)
        .returning(ApiKey)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return (await session.scalars(statement)).one()
