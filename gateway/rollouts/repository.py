"""All SQL of rollouts. Whoever changes one holds its adapter's lock first, then its own row's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import delete, func, select, text

from gateway.db import SystemRead, TenantRead, TenantWrite
from gateway.ids import uuid7
from gateway.models import Adapter, Rollout, RolloutEvent
from gateway.models.rollout import ACTIVE
from gateway.paging import ById, Order
from gateway.principal import TenantId
from gateway.rollouts.figures import Figures
from gateway.traffic.histograms import EDGES

NEWEST_FIRST: Order[ById] = Order("rollouts", UUID)
MAX_EVENTS: Final = 200
"""Of one rollout; its steps need 42 at most, the rest is for people's pauses."""
KEPT: Final = 100
"""Rollouts of one adapter that ended; older ones go when another begins."""

_FIGURES = text(
    """
    WITH ended AS (
      SELECT adapter_version AS version,
             bool_or(outcome = 'finished') AS finished,
             bool_or(outcome = 'not_finite') AS not_finite,
             sum(prompt_tokens) AS prompt, sum(completion_tokens) AS completion,
             min(greatest(0, ttft_ms - coalesce(load_ms, 0))) FILTER (WHERE outcome = 'finished') AS ttft,
             bool_or(outcome = 'finished' AND cached_tokens * 2 >= prompt_tokens) AS warm,
             min((total_ms - ttft_ms)::float8 / nullif(completion_tokens - 1, 0))
               FILTER (WHERE outcome = 'finished' AND completion_tokens > 1 AND total_ms >= ttft_ms) AS gap
        FROM usage_ledger
       WHERE tenant_id = :tenant AND ended_at >= :start AND ended_at < :stop
         AND base_id = :base AND adapter_name = :name AND adapter_version = ANY(:versions)
         AND source = 'engine' AND purpose = 'tenant'
       GROUP BY adapter_version, request_id
      HAVING bool_or(outcome NOT IN ('aborted', 'refused', 'taken_over'))
    )
    SELECT version, warm, coalesce(width_bucket(ttft::float8, CAST(:edges AS float8[])), -1) AS bucket,
           coalesce(width_bucket(gap, CAST(:edges AS float8[])), -1) AS gap_bucket,
           count(*) AS requests, count(*) FILTER (WHERE NOT finished) AS failed,
           count(*) FILTER (WHERE not_finite) AS not_finite,
           sum(prompt) AS prompt, sum(completion) AS completion
      FROM ended GROUP BY version, warm, bucket, gap_bucket
    """
)
"""A request whose attempts all failed, failed. What clients cut, and what could not be served to anybody, is
left out. `width_bucket` puts what lies on an edge one bucket higher than `bucket_of`, for both alike."""


@dataclass(frozen=True, slots=True)
class Named:
    """Where a rollout's requests are in the ledger."""

    tenant: TenantId
    base_id: str
    adapter: str


async def list_active(session: SystemRead, limit: int) -> list[tuple[UUID, TenantId, UUID]]:
    """(id, tenant, adapter) of all that are not at their end."""
    query = select(Rollout.id, Rollout.tenant_id, Rollout.adapter_id).where(Rollout.state.in_(ACTIVE))
    found = await session.execute(query.order_by(Rollout.id).limit(limit))
    return [(id_, TenantId(tenant), adapter) for id_, tenant, adapter in found]


async def num_active(session: TenantRead, tenant: TenantId) -> int:
    query = select(func.count()).select_from(Rollout)
    return int(await session.scalar(query.where(Rollout.tenant_id == tenant, Rollout.state.in_(ACTIVE))) or 0)


async def lock_adapter(session: TenantWrite, adapter_id: UUID) -> Adapter | None:
    """The adapter's row, locked until the transaction ends."""
    return await session.scalar(select(Adapter).where(Adapter.id == adapter_id).with_for_update())


async def lock(session: TenantWrite, adapter_id: UUID, rollout: UUID) -> Rollout | None:
    query = select(Rollout).where(Rollout.adapter_id == adapter_id, Rollout.id == rollout)
    return await session.scalar(query.with_for_update())


async def find(session: TenantRead, adapter_id: UUID, rollout: UUID) -> Rollout | None:
    query = select(Rollout).where(Rollout.adapter_id == adapter_id, Rollout.id == rollout)
    return await session.scalar(query)


async def list_rollouts(
    session: TenantRead, adapter_id: UUID, before: UUID | None, limit: int
) -> Sequence[Rollout]:
    """Newest first, from below `before`."""
    query = select(Rollout).where(Rollout.adapter_id == adapter_id)
    if before is not None:
        query = query.where(Rollout.id < before)
    return (await session.scalars(query.order_by(Rollout.id.desc()).limit(limit))).all()


async def events_of(session: TenantRead, rollout: Rollout) -> Sequence[RolloutEvent]:
    """Oldest first."""
    query = select(RolloutEvent).where(
        RolloutEvent.tenant_id == rollout.tenant_id, RolloutEvent.rollout_id == rollout.id
    )
    return (await session.scalars(query.order_by(RolloutEvent.id).limit(MAX_EVENTS))).all()


async def num_events(session: TenantRead, rollout: Rollout) -> int:
    query = select(func.count()).select_from(RolloutEvent)
    of = (RolloutEvent.tenant_id == rollout.tenant_id, RolloutEvent.rollout_id == rollout.id)
    return int(await session.scalar(query.where(*of)) or 0)


def add_event(session: TenantWrite, rollout: Rollout, kind: str, actor: str, details: dict[str, Any]) -> None:
    session.add(
        RolloutEvent(
            id=uuid7(),
            tenant_id=rollout.tenant_id,
            rollout_id=rollout.id,
            kind=kind,
            actor=actor,
            details=details,
        )
    )


async def forget_old(session: TenantWrite, adapter: Adapter) -> None:
    """All that ended but the last `KEPT`."""
    ended = select(Rollout.id).where(Rollout.adapter_id == adapter.id, Rollout.state.not_in(ACTIVE))
    old = ended.order_by(Rollout.id.desc()).offset(KEPT)
    await session.execute(delete(Rollout).where(Rollout.id.in_(old)))


async def figures(
    session: TenantRead, named: Named, versions: Sequence[int], start: datetime, stop: datetime
) -> dict[int, Figures]:
    """Of requests that ended in [start, stop), by version."""
    rows = await session.execute(
        _FIGURES,
        {
            "tenant": named.tenant,
            "base": named.base_id,
            "name": named.adapter,
            "versions": list(versions),
            "start": start,
            "stop": stop,
            "edges": list(EDGES),
        },
    )
    found = {version: Figures() for version in versions}
    for row in rows.mappings():
        times = _histogram(row["bucket"], row["requests"])
        found[row["version"]] += Figures(
            requests=row["requests"],
            failed=row["failed"],
            not_finite=row["not_finite"],
            prompt_tokens=int(row["prompt"]),
            completion_tokens=int(row["completion"]),
            ttft=[] if row["warm"] else times,
            ttft_warm=times if row["warm"] else [],
            inter_token=_histogram(row["gap_bucket"], row["requests"]),
        )
    return found


def _histogram(bucket: int, count: int) -> list[int]:
    """Of one bucket; -1: nothing was measured."""
    return [] if bucket < 0 else [*(0 for _ in range(bucket)), count]
