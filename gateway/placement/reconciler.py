"""Control's job: has each replica hold what is wanted of it, and what was hot before it started."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final
from uuid import UUID

import structlog

from gateway.db import Database
from gateway.models import PlacementTier
from gateway.placement import repository
from gateway.placement.metrics import CALLS, SHORT
from gateway.placement.planning import MOST_WARM, Call, Hot, Planner, Wanted, homes
from gateway.placement.quota import Quota, quota_of
from gateway.placement.repository import Placed
from gateway.principal import TenantId
from gateway.replicas.driver import UpstreamFailed
from gateway.replicas.registry import Registry
from gateway.replicas.replica import IN_HOST, Replica
from gateway.replicas.rules import Asking, pool_of

log = structlog.get_logger(__name__)

AT_A_TIME: Final = 16
"""Calls under way."""


class Placer:
    """Belongs to the leader. Its rounds may be cut anywhere, and repeated."""

    def __init__(self, db: Database, registry: Registry, base_id: str, default: Quota) -> None:
        self._db = db
        self._registry = registry
        self._base_id = base_id
        self._default = default
        self._planner = Planner()

    async def run_once(self) -> int:
        """Looks at the replicas, asks of them what is due; gives how many calls they took. Raises
        `Unavailable`."""
        await self._registry.poll_once()
        started = self._planner.look(self._registry.all)
        wanted, hot = await self._read(started)
        if started:
            self._planner.warm(hot)
        SHORT.set(sum(_is_short(each) for each in wanted))
        calls = self._planner.plan(wanted)
        places = asyncio.Semaphore(AT_A_TIME)
        return sum(await asyncio.gather(*(self._ask(call, places) for call in calls)))

    async def _read(self, started: bool) -> tuple[list[Wanted], list[Hot]]:
        async with self._db.system_reader() as session:
            placed = await repository.placed(session, self._base_id)
            tenants = {each.placement.tenant_id for each in placed}
            own = await repository.quotas(session, tenants)
            hot = await repository.hot(session, self._base_id, MOST_WARM) if started else []
        by_tenant: dict[UUID, list[Placed]] = defaultdict(list)
        for each in placed:
            by_tenant[each.placement.tenant_id].append(each)
        wanted = [
            self._wanted(each)
            for tenant, theirs in by_tenant.items()
            for each in quota_of(own.get(tenant), self._default).within(theirs)
        ]
        return wanted, [
            Hot(each.artefact, each.owner, self._members(each.owner, each.adapter)) for each in hot
        ]

    def _wanted(self, placed: Placed) -> Wanted:
        placement = placed.placement
        return Wanted(
            placed.artefact,
            placement.tenant_id,
            placement.replicas,
            placement.pinned,
            PlacementTier(placement.tier),
            self._members(placement.tenant_id, placed.adapter),
        )

    def _members(self, tenant: UUID, adapter: str) -> tuple[Replica, ...]:
        """Of the pool that a short request for it goes to."""
        return members_for(self._registry, TenantId(tenant), adapter)

    async def _ask(self, call: Call, places: asyncio.Semaphore) -> bool:
        driver, owner = call.replica.driver, str(call.owner)
        kind = "load" if call.keep_s is None else "keep"
        async with places:
            try:
                if call.keep_s is None:
                    await driver.prefetch(call.artefact, owner)
                else:
                    keep_ms = round(call.keep_s * 1000)
                    await driver.keep(call.artefact, owner, keep_ms, on_device=call.on_device)
            except UpstreamFailed as error:
                self._planner.failed(call)
                CALLS.labels(kind, "failed").inc()
                log.info("placement_call_failed", url=call.replica.url, reason=str(error))
                return False
        CALLS.labels(kind, "done").inc()
        return True


def members_for(registry: Registry, tenant: TenantId, adapter: str) -> tuple[Replica, ...]:
    """The replicas among which an adapter's homes are ranked."""
    pool, _ = pool_of(registry.rules, Asking(0, 0, "standard", tenant, adapter))
    return registry.members(pool)


def _is_short(wanted: Wanted) -> bool:
    """Whether fewer replicas hold it than should."""
    there = homes(wanted.artefact, wanted.members, wanted.replicas)
    held = sum(replica.healthy and replica.residency(wanted.artefact) >= IN_HOST for replica in there)
    return held < wanted.replicas
