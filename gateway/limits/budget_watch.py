"""Control's part of budgets: tells the counters in Redis what was charged, and the tenants when a threshold
is reached. Each round may be repeated: counters are only raised, and an event is published once."""

from __future__ import annotations

from typing import Any, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.billing.money import amount_text
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.limits import repository
from gateway.limits.columns import budget_of
from gateway.limits.levels import Counter, counter_of, today
from gateway.limits.redis_store import RedisStore
from gateway.models import BudgetRow
from gateway.principal import TenantId

log = structlog.get_logger(__name__)

KIND: Final = "budget.threshold"
MAX_TOLD: Final = 100_000
"""Events that a leader remembers to have published; the outbox knows all of them."""


class Publish(Protocol):
    """`gateway.webhooks.outbox.publish`: a row in the caller's transaction."""

    async def __call__(
        self, session: AsyncSession, tenant: TenantId, kind: str, data: dict[str, Any], *, once: str
    ) -> None: ...


class BudgetWatch:
    """One per leader."""

    def __init__(self, db: Database, store: RedisStore, publish: Publish) -> None:
        self._db = db
        self._store = store
        self._publish = publish
        self._told: set[str] = set()

    async def run_once(self) -> int:
        """Gives how many events were published. Raises `Unavailable` when the database can't answer."""
        day = today()
        async with self._db.system_reader() as session:
            watched = await repository.charged_by_budget(session, day)
        return sum([await self._look(row, units) for row, units in watched])

    async def _look(self, row: BudgetRow, charged: int) -> int:
        tenant = TenantId(row.tenant_id)
        counter = counter_of(tenant, row.key_id or None, budget_of(row), today())
        spent = await self._spent(counter, charged)
        news = {
            _name(counter, percent): percent
            for percent in row.thresholds
            if spent * 100 >= counter.limit * percent
        }
        fresh = {name: percent for name, percent in news.items() if name not in self._told}
        if not fresh:
            return 0
        async with self._db.system_session() as session:
            for name, percent in fresh.items():
                await self._publish(session, tenant, KIND, _told(counter, spent, percent), once=name)
        if len(self._told) + len(fresh) > MAX_TOLD:
            self._told.clear()
        self._told.update(fresh)
        return len(fresh)

    async def _spent(self, counter: Counter, charged: int) -> int:
        """With what has ended and is not charged yet, as far as Redis can say."""
        try:
            settled, _ = await self._store.seed(counter, charged)
        except Unavailable:
            return charged
        return settled


def _name(counter: Counter, percent: int) -> str:
    """A budget that was changed tells anew."""
    whose = counter.key_id or "tenant"
    return f"{KIND}:{whose}:{counter.period}:{counter.first}:{counter.limit}:{percent}"


def _told(counter: Counter, spent: int, percent: int) -> dict[str, Any]:
    return {
        "limit_id": counter.id,
        "key_id": counter.key_id,
        "period": counter.period.value,
        "period_start": f"{counter.start:%Y-%m-%dT%H:%M:%SZ}",
        "period_end": f"{counter.end:%Y-%m-%dT%H:%M:%SZ}",
        "threshold_percent": percent,
        "budget": amount_text(counter.limit),
        "spent": amount_text(spent),
        "hard": counter.hard,
    }
