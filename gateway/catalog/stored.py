"""SQL of stored objects: which versions have a claim to one, and what may go."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select, text, tuple_, update

from gateway.db import SystemRead, TenantRead, TenantWrite
from gateway.models import AdapterVersion, Tenant, VersionState
from gateway.principal import TenantId


def keeps_bytes() -> ColumnElement[bool]:
    """Whether a version's artefact has to be in the store. One that was rejected before it was ever ready
    never answers; one that was ready may be proved again."""
    over = (VersionState.RETIRED, VersionState.REJECTED)
    was_ready = and_(AdapterVersion.state == VersionState.REJECTED, AdapterVersion.ready_at.is_not(None))
    return or_(AdapterVersion.state.not_in(over), was_ready)


def is_restorable() -> ColumnElement[bool]:
    """Retired, and within its retention: its object is kept, if it had one."""
    never_ready = (AdapterVersion.state_before == VersionState.REJECTED) & AdapterVersion.ready_at.is_(None)
    return and_(
        AdapterVersion.state == VersionState.RETIRED,
        AdapterVersion.purges_at > func.clock_timestamp(),
        func.coalesce(never_ready, False).is_(False),
    )


def is_kept() -> ColumnElement[bool]:
    """Whether a version has a claim to its stored object."""
    return keeps_bytes() | is_restorable()


def stored_of(tenant: TenantId) -> Select[int, int]:
    """How many versions a tenant has, and the bytes of those that keep some: retired ones count until they
    are purged."""
    unpurged = AdapterVersion.purges_at.is_not(None) & AdapterVersion.purged_at.is_(None)
    num_bytes = func.sum(AdapterVersion.num_bytes).filter(or_(keeps_bytes(), unpurged))
    return select(func.count(), func.coalesce(num_bytes, 0)).where(
        AdapterVersion.tenant_id == tenant, or_(AdapterVersion.state != VersionState.RETIRED, unpurged)
    )


async def lock_artefact(session: TenantWrite, artefact: str) -> None:
    """Until the transaction ends, nobody else adds a reference to the stored object or removes it."""
    key = int.from_bytes(bytes.fromhex(artefact[:16]), signed=True)
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


async def is_referenced(session: TenantRead, tenant: TenantId, artefact: str) -> bool:
    """Whether a version has this artefact that is not retired, or can still be restored."""
    query = select(AdapterVersion.id).where(
        AdapterVersion.tenant_id == tenant, AdapterVersion.artefact == artefact, is_kept()
    )
    return await session.scalar(query.limit(1)) is not None


async def not_in_use(session: TenantRead, tenant: TenantId, artefacts: Sequence[str]) -> list[str]:
    """Those that only retired versions have."""
    used = await session.scalars(
        select(AdapterVersion.artefact).where(
            AdapterVersion.tenant_id == tenant,
            AdapterVersion.artefact.in_(artefacts),
            AdapterVersion.state != VersionState.RETIRED,
        )
    )
    return sorted(set(artefacts) - set(used))


async def found_again(session: TenantWrite, tenant: TenantId, artefact: str) -> None:
    """Its object is in the store once more: what was marked as lost resolves again."""
    await session.execute(
        update(AdapterVersion)
        .where(
            AdapterVersion.tenant_id == tenant,
            AdapterVersion.artefact == artefact,
            AdapterVersion.lost_at.is_not(None),
        )
        .values(lost_at=None)
        .execution_options(synchronize_session=False)
    )


async def unreferenced(
    session: SystemRead, stored: Sequence[tuple[TenantId, str]]
) -> list[tuple[TenantId, str]]:
    """Those (owner, artefact) that no version keeps, of tenants that are known here."""
    owners = {owner for owner, _ in stored}
    known = set(await session.scalars(select(Tenant.id).where(Tenant.id.in_(owners))))
    kept = select(AdapterVersion.tenant_id, AdapterVersion.artefact).where(
        tuple_(AdapterVersion.tenant_id, AdapterVersion.artefact).in_(stored), is_kept()
    )
    referenced = {(tenant, artefact) for tenant, artefact in await session.execute(kept)}
    return [each for each in stored if each[0] in known and each not in referenced]


async def list_stored(
    session: SystemRead, after: uuid.UUID, limit: int
) -> Sequence[Row[uuid.UUID, uuid.UUID, str, int, bool]]:
    """(id, tenant, artefact, bytes, whether it is known to be lost) of every tenant's versions that have a
    claim to their object, in order of their ids."""
    query = (
        select(
            AdapterVersion.id,
            AdapterVersion.tenant_id,
            AdapterVersion.artefact,
            AdapterVersion.num_bytes,
            AdapterVersion.lost_at.is_not(None),
        )
        .where(AdapterVersion.id > after, is_kept())
        .order_by(AdapterVersion.id)
        .limit(limit)
    )
    return (await session.execute(query)).all()
