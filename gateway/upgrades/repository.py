"""All SQL of upgrades of a base's weights. It sees all tenants' versions, and changes none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Interval, Select, bindparam, func, literal, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import (
    Adapter,
    AdapterProof,
    AdapterVersion,
    BaseModel,
    BaseUpgrade,
    UpgradeState,
    VersionState,
)
from gateway.paging import Order

BY_VERSION: Order[tuple[UUID]] = Order("left_behind", UUID)
HOT_FOR: Final = timedelta(days=1)
"""Whose usage decides who is proved first."""
NOTHING_LOOKED_AT: Final[Mapping[str, Any]] = {
    "checks": [],
    "acceptance": None,
    "load_ms": 0.0,
    "tier": "",
    "replica_ms": 0.0,
    "total_ms": 0.0,
}
"""The report of a version that served on these weights before there were proofs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of all ready versions of a base, with regard to some weights."""

    proved: int
    failed: int
    left: int


async def bases(session: SystemRead) -> Sequence[BaseModel]:
    """By name."""
    return (await session.scalars(select(BaseModel).order_by(BaseModel.name))).all()


async def lock_base(session: SystemWrite, base_id: str) -> BaseModel | None:
    query = select(BaseModel).where(BaseModel.base_id == base_id)
    return await session.scalar(query.with_for_update())


async def upgrades(session: SystemRead) -> Sequence[BaseUpgrade]:
    """The newest first."""
    return (await session.scalars(select(BaseUpgrade).order_by(BaseUpgrade.started_at.desc()))).all()


async def begin(session: SystemWrite, base_id: str, base_digest: str) -> None:
    values = {"state": UpgradeState.PROVING.value, "started_at": func.now(), "ended_at": None}
    await session.execute(
        insert(BaseUpgrade)
        .values(base_id=base_id, base_digest=base_digest, **values)
        .on_conflict_do_update(index_elements=["base_id", "base_digest"], set_=values)
    )


async def end(session: SystemWrite, base_id: str, base_digest: str, state: UpgradeState) -> bool:
    """False when there is none under way."""
    done = await session.scalar(
        update(BaseUpgrade)
        .where(
            BaseUpgrade.base_id == base_id,
            BaseUpgrade.base_digest == base_digest,
            BaseUpgrade.state == UpgradeState.PROVING,
        )
        .values(state=state.value, ended_at=func.now())
        .returning(BaseUpgrade.base_digest)
        .execution_options(synchronize_session=False)
    )
    return done is not None


async def assume(session: SystemWrite, base_id: str, digests: Sequence[str]) -> None:
    """Ready versions from before there were proofs serve on these weights: so it is written down, before
    others are let in."""
    await session.execute(
        _ASSUME, {"base_id": base_id, "digests": list(digests), "report": dict(NOTHING_LOOKED_AT)}
    )


async def progress(session: SystemRead, base_id: str, base_digest: str) -> Progress:
    found = AdapterProof.passed
    query = (
        _ready(base_id)
        .outerjoin(
            AdapterProof,
            (AdapterProof.version_id == AdapterVersion.id) & (AdapterProof.base_digest == base_digest),
        )
        .with_only_columns(
            func.count().filter(found),
            func.count().filter(~found),
            func.count().filter(found.is_(None)),
        )
    )
    proved, failed, left = (await session.execute(query)).one()
    return Progress(int(proved), int(failed), int(left))


async def left_behind(
    session: SystemRead, base_id: str, base_digest: str | None, after: UUID | None, limit: int
) -> list[tuple[AdapterVersion, Adapter, str | None]]:
    """Ready versions that can't follow, with the reason: with `base_digest` those of the base that failed on
    these weights, else those of any other base. By version."""
    query = select(AdapterVersion, Adapter).join(Adapter, Adapter.id == AdapterVersion.adapter_id)
    query = query.where(AdapterVersion.state == VersionState.READY)
    if base_digest is None:
        reasoned = query.where(Adapter.base_id != base_id).add_columns(literal(None))
    else:
        reasoned = (
            query.join(AdapterProof, AdapterProof.version_id == AdapterVersion.id)
            .where(Adapter.base_id == base_id, AdapterProof.base_digest == base_digest, ~AdapterProof.passed)
            .add_columns(AdapterProof.reason)
        )
    if after is not None:
        reasoned = reasoned.where(AdapterVersion.id > after)
    rows = await session.execute(reasoned.order_by(AdapterVersion.id).limit(limit))
    return [(version, adapter, reason) for version, adapter, reason in rows]


async def enlist(session: SystemWrite, base_id: str, base_digest: str, limit: int) -> int:
    """Tasks for ready versions that have been proved, but not on these weights: those with the most usage of
    late first. Gives how many."""
    values = {"base_id": base_id, "digest": base_digest, "hot_for": HOT_FOR, "most": limit}
    return len((await session.execute(_ENLIST, values)).all())


_ASSUME: Final = text(
    """
    INSERT INTO adapter_proofs (version_id, base_digest, tenant_id, passed, report)
    SELECT v.id, d.digest, v.tenant_id, true, :report
    FROM adapter_versions v
    JOIN adapters a ON a.id = v.adapter_id
    CROSS JOIN unnest(CAST(:digests AS text[])) AS d (digest)
    WHERE a.base_id = :base_id AND v.state = 'ready'
      AND NOT EXISTS (SELECT FROM adapter_proofs p WHERE p.version_id = v.id)
    ON CONFLICT DO NOTHING
    """
).bindparams(bindparam("report", type_=JSONB))

_ENLIST: Final = text(
    """
    INSERT INTO proof_tasks (version_id, base_digest, tenant_id, priority)
    SELECT w.id, :digest, w.tenant_id, least(w.heat, 999999) - 1000000
    FROM (
      SELECT v.id, v.tenant_id, coalesce((
          SELECT sum(u.requests) FROM usage_rollups u
          WHERE u.tenant_id = v.tenant_id AND u.artefact = v.artefact AND u.bucket > now() - :hot_for
        ), 0) AS heat
      FROM adapter_versions v
      JOIN adapters a ON a.id = v.adapter_id
      WHERE a.base_id = :base_id AND v.state = 'ready'
        AND EXISTS (SELECT FROM adapter_proofs p WHERE p.version_id = v.id)
        AND NOT EXISTS (
          SELECT FROM adapter_proofs p WHERE p.version_id = v.id AND p.base_digest = :digest)
        AND NOT EXISTS (
          SELECT FROM proof_tasks t WHERE t.version_id = v.id AND t.base_digest = :digest)
    ) w
    ORDER BY w.heat DESC, w.id
    LIMIT :most
    ON CONFLICT DO NOTHING
    RETURNING version_id
    """
).bindparams(bindparam("hot_for", type_=Interval))


def _ready(base_id: str) -> Select[Any]:
    return (
        select(AdapterVersion.id)
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(Adapter.base_id == base_id, AdapterVersion.state == VersionState.READY)
    )
