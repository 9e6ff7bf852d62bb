"""One look for all operators who have the page open, whatever it costs one of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from gateway.attention import judging, repository
from gateway.attention.schemas import Attention, QueueNow
from gateway.db import Database
from gateway.limits.levels import today
from gateway.limits.repository import charged_by_budget
from gateway.queueing.fair_queue import FairQueue
from gateway.replicas.service import MAX_REPLICAS, Replicas
from gateway.shared_look import SharedLook
from gateway.store_checks.schemas import StoreOut
from gateway.store_checks.service import StoreChecks
from gateway.traffic.repository import names

FRESH_S: Final = 5.0
BUDGETS_FRESH_S: Final = 60.0
"""They are sums over the charges of a month."""
STORE_FRESH_S: Final = 30.0
STORE_WAIT_S: Final = 3.0
"""One that does not answer must not hold up what else is known."""
FAILED_S: Final = 5.0
"""One look that failed must not hide all else for as long as what is found stands."""


class Lookout:
    """One a worker."""

    def __init__(self, db: Database, replicas: Replicas, store: StoreChecks, queue: FairQueue) -> None:
        self._db = db
        self._replicas = replicas
        self._store = store
        self._queue = queue
        self._all: SharedLook[Attention] = SharedLook(FRESH_S)
        self._budgets: SharedLook[judging.Budgets] = SharedLook(BUDGETS_FRESH_S, FAILED_S)
        self._stored: SharedLook[StoreOut | None] = SharedLook(STORE_FRESH_S, FAILED_S)

    async def look(self) -> Attention:
        """As it was up to five seconds ago. Raises `Unavailable`."""
        return await self._all(self._look)

    async def _look(self) -> Attention:
        now = datetime.now(UTC)
        replicas = await self._replicas.page(None, MAX_REPLICAS)
        async with self._db.system_reader() as session:
            found = await repository.look(session, repository.windows(now))
        budgets = await self._budgets(self._look_at_budgets)
        store = await self._stored(self._look_at_store)
        depth = self._queue.depth
        queue = QueueNow(
            waiting=depth.waiting,
            waiting_tokens=depth.waiting_tokens,
            running=sum(each.in_flight for each in replicas),
            places=depth.places,
            tokens_per_s=depth.tokens_per_s,
            wait_s=depth.wait_s,
        )
        findings = [
            *judging.of_requests(found.requests, queue),
            *judging.of_replicas(replicas),
            *judging.of_store(store),
            *judging.of_ledger(found.ledger, now),
            *judging.of_budgets(budgets),
            *judging.of_adapters(found),
        ]
        return Attention(looked_at=now, queue=queue, data=judging.ordered(findings))

    async def _look_at_budgets(self) -> judging.Budgets:
        async with self._db.system_reader() as session:
            found = await charged_by_budget(session, today())
            found.sort(key=lambda one: one[1] / int(one[0].amount), reverse=True)
            worst = found[: repository.MOST]
            named = await names(session, {row.tenant_id for row, _ in worst})
        return [(row, spent, named.get(row.tenant_id, "")) for row, spent in worst]

    async def _look_at_store(self) -> StoreOut | None:
        try:
            async with asyncio.timeout(STORE_WAIT_S):
                return await self._store.state()
        except TimeoutError:
            return None
