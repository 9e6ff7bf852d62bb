"""All SQL of purges: what rows a tenant has, by table, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Table, cast, delete, func, literal, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.types import Text

from gateway.db import SystemRead, SystemWrite
from gateway.models import (
    AdapterVersion,
    Base,
    Lifecycle,
    Offboarding,
    OffboardingState,
    PurgeStep,
    Tenant,
    TenantStatus,
)
from gateway.principal import TenantId
from gateway.tenants.holdings import KEPT_TABLES, NAMED_OTHERWISE, PURGED_TABLES

BATCH_ROWS: Final = 2_000
MAX_DUE: Final = 100


def purged_tables() -> list[Table]:
    """Those that refer to others come first."""
    return [table for table in reversed(Base.metadata.sorted_tables) if table.name in PURGED_TABLES]


async def names_of_rows(session: SystemRead, table: Table, tenant: TenantId) -> AsyncIterator[str]:
    """Primary keys of the tenant's rows, as text."""
    keys = [cast(column, Text) for column in table.primary_key.columns]
    name = func.concat_ws(literal(" "), *keys)
    found = await session.stream_scalars(
        select(name).where(_whose(table, tenant)).execution_options(yield_per=BATCH_ROWS)
    )
    async for each in found:
        yield str(each)


async def delete_some(session: SystemWrite, table: Table, tenant: TenantId) -> int:
    """At most `BATCH_ROWS` of the tenant's rows; how many there were."""
    key = tuple_(*table.primary_key.columns)
    some = select(*table.primary_key.columns).where(_whose(table, tenant)).limit(BATCH_ROWS)
    gone = await session.execute(
        delete(table).where(key.in_(some)).returning(literal(1)).execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _whose(table: Table, tenant: TenantId) -> ColumnElement[bool]:
    return table.c[NAMED_OTHERWISE.get(table.name, "tenant_id")] == tenant


async def artefacts_of(session: SystemRead, tenant: TenantId) -> list[str]:
    """All that a tenant's versions ever referred to, retired ones too: a replica may hold them still."""
    query = select(AdapterVersion.artefact).where(AdapterVersion.tenant_id == tenant).distinct()
    return list(await session.scalars(query))


async def kept_rows(session: SystemRead, tenant: TenantId) -> dict[str, int]:
    """How many rows stay, by table."""
    found: dict[str, int] = {}
    for name in sorted(KEPT_TABLES):
        table = Base.metadata.tables[name]
        query = select(func.count()).select_from(table).where(_whose(table, tenant))
        found[name] = int(await session.scalar(query) or 0)
    return found


async def due(session: SystemRead) -> list[Offboarding]:
    """Whose grace is over, or whose purge was begun; oldest first."""
    waiting = (Offboarding.state == OffboardingState.WAITING) & (Offboarding.purge_after <= func.now())
    query = (
        select(Offboarding)
        .where(waiting | (Offboarding.state == OffboardingState.PURGING))
        .order_by(Offboarding.purge_after)
        .limit(MAX_DUE)
    )
    return list(await session.scalars(query))


async def to_look_again(session: SystemRead, after_h: float) -> list[Offboarding]:
    old = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, after_h * 3600)
    query = (
        select(Offboarding)
        .where(
            Offboarding.state == OffboardingState.PURGED,
            Offboarding.looked_again_at.is_(None),
            Offboarding.ended_at <= old,
        )
        .order_by(Offboarding.ended_at)
        .limit(MAX_DUE)
    )
    return list(await session.scalars(query))


async def begin(session: SystemWrite, offboarding: UUID) -> bool:
    """From waiting to purging; False when it is no longer waiting (undone, or begun before)."""
    moved = await session.execute(
        update(Offboarding)
        .where(
            Offboarding.id == offboarding,
            Offboarding.state == OffboardingState.WAITING,
            Offboarding.purge_after <= func.now(),
        )
        .values(state=OffboardingState.PURGING)
        .returning(Offboarding.id)
        .execution_options(synchronize_session=False)
    )
    return moved.first() is not None


async def steps(session: SystemRead, offboarding: UUID) -> dict[str, PurgeStep]:
    query = select(PurgeStep).where(PurgeStep.offboarding_id == offboarding)
    return {step.kind: step for step in await session.scalars(query)}


async def list_step(session: SystemWrite, offboarding: UUID, kind: str, found: int, digest: str) -> None:
    """What was there, before anything of it was deleted: the first list stays."""
    row = {"offboarding_id": offboarding, "kind": kind, "found": found, "digest": digest}
    await session.execute(insert(PurgeStep).values(row).on_conflict_do_nothing())


async def end_step(session: SystemWrite, offboarding: UUID, kind: str) -> None:
    await session.execute(
        update(PurgeStep)
        .where(PurgeStep.offboarding_id == offboarding, PurgeStep.kind == kind, PurgeStep.done_at.is_(None))
        .values(done_at=func.now())
        .execution_options(synchronize_session=False)
    )


async def end(session: SystemWrite, offboarding: Offboarding, name: str, salt: str, proof: Any) -> bool:
    """The tenant under its pseudonym, and the proof; False when another process was faster."""
    ended = await session.execute(
        update(Offboarding)
        .where(Offboarding.id == offboarding.id, Offboarding.state == OffboardingState.PURGING)
        .values(state=OffboardingState.PURGED, proof=proof, ended_at=func.now(), ended_by="system")
        .returning(Offboarding.id)
        .execution_options(synchronize_session=False)
    )
    if ended.first() is None:
        return False
    await session.execute(
        update(Tenant)
        .where(Tenant.id == offboarding.tenant_id)
        .values(
            name=name,
            salt=salt,
            status=TenantStatus.SUSPENDED,
            lifecycle=Lifecycle.PURGED,
            suspended_for=None,
            response_cache="off",
            epoch=Tenant.epoch + 1,
            updated_at=func.now(),
        )
        .execution_options(synchronize_session=False)
    )
    return True


async def note_second_look(session: SystemWrite, offboarding: UUID, leftovers: dict[str, int]) -> None:
    await session.execute(
        update(Offboarding)
        .where(Offboarding.id == offboarding)
        .values(looked_again_at=func.now(), leftovers=leftovers)
        .execution_options(synchronize_session=False)
    )
