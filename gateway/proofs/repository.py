"""All SQL of proofs: the facts of a version, verdicts on it, and proofs that are to do. Every look-up of a
tenant's things starts from the tenant; only `due` sees all tenants'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, TenantRead, TenantWrite
from gateway.models import (
    Adapter,
    AdapterFacts,
    AdapterProof,
    AdapterVersion,
    Alias,
    ProofTask,
    Tenant,
    VersionState,
)
from gateway.principal import TenantId

ANY_WEIGHTS = ""


@dataclass(frozen=True, slots=True)
class TaskKey:
    """One proof that is to do. `base_digest` "": on whichever weights may serve."""

    tenant: TenantId
    version_id: UUID
    base_digest: str = ANY_WEIGHTS


@dataclass(frozen=True, slots=True)
class Held:
    """A task that `holder` has, and what it is about."""

    key: TaskKey
    holder: UUID
    longest: bool
    tries: int
    adapter_id: UUID
    name: str
    number: int
    artefact: str
    salt: str  # of the tenant's KV
    acceptance: Mapping[str, Any] | None

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number}"


async def add_facts(
    session: TenantWrite, version: AdapterVersion, facts: dict[str, Any], acceptance: dict[str, Any] | None
) -> None:
    session.add(
        AdapterFacts(version_id=version.id, tenant_id=version.tenant_id, facts=facts, acceptance=acceptance)
    )
    await session.flush()


async def add_task(
    session: TenantWrite,
    key: TaskKey,
    *,
    longest: bool = False,
    priority: int = 0,
    holder: UUID | None = None,
    lease: timedelta = timedelta(),
) -> None:
    """One that is there already is due now, and asks for no less than before. With `holder` a new one is
    held from the beginning."""
    row = insert(ProofTask).values(
        version_id=key.version_id,
        base_digest=key.base_digest,
        tenant_id=key.tenant,
        longest=longest,
        priority=priority,
        holder=holder,
        held_until=func.now() + lease if holder is not None else None,
    )
    await session.execute(
        row.on_conflict_do_update(
            index_elements=["version_id", "base_digest"],
            set_={
                "longest": ProofTask.longest | row.excluded.longest,
                "priority": func.greatest(ProofTask.priority, row.excluded.priority),
                "not_before": func.now(),
            },
        )
    )


async def due(session: SystemRead, base_id: str, limit: int) -> list[TaskKey]:
    """Tasks that nobody holds and whose time has come: the first of each tenant, then the second of each, and
    so on."""
    turn = func.row_number().over(
        partition_by=ProofTask.tenant_id, order_by=(ProofTask.priority.desc(), ProofTask.not_before)
    )
    query = (
        select(ProofTask.tenant_id, ProofTask.version_id, ProofTask.base_digest)
        .join(AdapterVersion, AdapterVersion.id == ProofTask.version_id)
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(Adapter.base_id == base_id, ProofTask.not_before <= func.now(), _free())
        .order_by(turn, ProofTask.priority.desc(), ProofTask.not_before)
        .limit(limit)
    )
    found = await session.execute(query)
    return [TaskKey(TenantId(tenant), version, digest) for tenant, version, digest in found]


async def waiting(session: SystemRead) -> int:
    """How many tasks there are."""
    return int(await session.scalar(select(func.count()).select_from(ProofTask)) or 0)


async def take(session: TenantWrite, key: TaskKey, holder: UUID, lease: timedelta) -> Held | None:
    """None: another has it, or there is nothing to prove any more (then the task is gone)."""
    state = await _lock_version(session, key)
    if state in (None, VersionState.RETIRED):
        await session.execute(delete(ProofTask).where(ProofTask.version_id == key.version_id))
        return None
    taken = await session.scalar(
        update(ProofTask)
        .where(*_is(key), or_(_free(), ProofTask.holder == holder))
        .values(holder=holder, held_until=func.now() + lease)
        .returning(ProofTask)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if taken is None:
        return None
    if state == VersionState.UPLOADED:
        await _set_state(session, key, VersionState.PROVING)
    row = await named(session, key.version_id)
    assert row is not None  # its row is locked
    adapter_id, name, number, artefact, salt = row
    acceptance = await acceptance_of(session, key.version_id)
    longest, tries = taken.longest, taken.tries
    return Held(key, holder, longest, tries, adapter_id, name, number, artefact, salt, acceptance)


async def renew(session: TenantWrite, held: Held, lease: timedelta) -> bool:
    """False: it is no longer held."""
    renewed = update(ProofTask).where(*_is(held.key), ProofTask.holder == held.holder)
    done = await session.scalar(
        renewed.values(held_until=func.now() + lease)
        .returning(ProofTask.version_id)
        .execution_options(synchronize_session=False)
    )
    return done is not None


async def put_off(session: TenantWrite, held: Held, reason: str, pause: timedelta, *, tried: bool) -> None:
    """Nobody holds it any more; it is due again after `pause`. Without effect once another has it."""
    await _lock_version(session, held.key)
    freed = await session.scalar(
        update(ProofTask)
        .where(*_is(held.key), ProofTask.holder == held.holder)
        .values(
            holder=None,
            held_until=None,
            not_before=func.now() + pause,
            tries=ProofTask.tries + int(tried),
            reason=reason,
        )
        .returning(ProofTask.version_id)
        .execution_options(synchronize_session=False)
    )
    if freed is not None:
        await session.execute(
            update(AdapterVersion)
            .where(AdapterVersion.id == held.key.version_id, AdapterVersion.state == VersionState.PROVING)
            .values(state=VersionState.UPLOADED)
            .execution_options(synchronize_session=False)
        )


async def lock_held(session: TenantWrite, held: Held) -> AdapterVersion | None:
    """The version, locked with its adapter, while the task is still held; None otherwise."""
    await session.execute(select(Adapter.id).where(Adapter.id == held.adapter_id).with_for_update())
    await _lock_version(session, held.key)
    still = await session.scalar(
        select(ProofTask.version_id).where(*_is(held.key), ProofTask.holder == held.holder).with_for_update()
    )
    if still is None:
        return None
    return await session.get(AdapterVersion, held.key.version_id)


async def end_task(session: TenantWrite, key: TaskKey) -> None:
    await session.execute(delete(ProofTask).where(*_is(key)))


async def write_proof(session: TenantWrite, key: TaskKey, values: Mapping[str, Any]) -> None:
    """The verdict of this version on those weights, in place of an earlier one."""
    row = {"version_id": key.version_id, "tenant_id": key.tenant, **values}
    await session.execute(
        insert(AdapterProof)
        .values(**row, proved_at=func.now())
        .on_conflict_do_update(
            index_elements=["version_id", "base_digest"],
            set_={
                **{name: values[name] for name in ("passed", "longest", "reason", "report")},
                "proved_at": func.now(),
            },
        )
    )


async def has_passed(session: TenantRead, version_id: UUID, but: str) -> bool:
    """On other weights than `but`."""
    query = select(AdapterProof.version_id).where(
        AdapterProof.version_id == version_id, AdapterProof.base_digest != but, AdapterProof.passed
    )
    return await session.scalar(query.limit(1)) is not None


async def alias_target(session: TenantRead, adapter_id: UUID, alias: str) -> int | None:
    """The version that the alias points to."""
    return await session.scalar(
        select(Alias.version).where(Alias.adapter_id == adapter_id, Alias.name == alias)
    )


async def acceptance_of(session: TenantRead, version_id: UUID) -> dict[str, Any] | None:
    return await session.scalar(select(AdapterFacts.acceptance).where(AdapterFacts.version_id == version_id))


async def facts_of(session: TenantRead, version_id: UUID) -> dict[str, Any] | None:
    return await session.scalar(select(AdapterFacts.facts).where(AdapterFacts.version_id == version_id))


async def proofs_of(session: TenantRead, version_id: UUID) -> Sequence[AdapterProof]:
    """The newest first."""
    query = select(AdapterProof).where(AdapterProof.version_id == version_id)
    return (await session.scalars(query.order_by(AdapterProof.proved_at.desc()))).all()


async def tasks_of(session: TenantRead, version_id: UUID) -> Sequence[ProofTask]:
    query = select(ProofTask).where(ProofTask.version_id == version_id)
    return (await session.scalars(query.order_by(ProofTask.base_digest))).all()


async def named(session: TenantRead, version_id: UUID) -> Row[UUID, str, int, str, str] | None:
    """(adapter's id, its name, number, artefact, the tenant's salt) of a version."""
    query = (
        select(Adapter.id, Adapter.name, AdapterVersion.number, AdapterVersion.artefact, Tenant.salt)
        .join(AdapterVersion, AdapterVersion.adapter_id == Adapter.id)
        .join(Tenant, Tenant.id == AdapterVersion.tenant_id)
        .where(AdapterVersion.id == version_id)
    )
    return (await session.execute(query)).one_or_none()


def _is(key: TaskKey) -> tuple[Any, ...]:
    return (ProofTask.version_id == key.version_id, ProofTask.base_digest == key.base_digest)


def _free() -> ColumnElement[bool]:
    return or_(ProofTask.holder.is_(None), ProofTask.held_until < func.now())


async def _lock_version(session: TenantWrite, key: TaskKey) -> str | None:
    """Its state. A version is locked before its tasks, its adapter before both."""
    query = select(AdapterVersion.state).where(AdapterVersion.id == key.version_id)
    return await session.scalar(query.with_for_update())


async def _set_state(session: TenantWrite, key: TaskKey, state: VersionState) -> None:
    await session.execute(
        update(AdapterVersion)
        .where(AdapterVersion.id == key.version_id)
        .values(state=state)
        .execution_options(synchronize_session=False)
    )
