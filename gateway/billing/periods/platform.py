"""What operators see of months: which are closed, why one is not, and whether each tenant's charges are what
it used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from gateway.billing.money import round_half_up
from gateway.billing.months import end_of, month_of, next_month, start_of
from gateway.billing.periods import repository
from gateway.billing.periods.blocked import Blocked, Open, look
from gateway.billing.periods.repository import ClosedMonth, TenantTotal, Tokens
from gateway.db import Database, SystemRead
from gateway.models import BillingPeriod
from gateway.usage.watermark import journals_complete_until

NO_TOKENS: Tokens = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMonth:
    """Amounts in units of 10⁻¹² of the currency; `rounded`: each tenant's by itself, and then summed."""

    month: date
    period: BillingPeriod | None  # None = not closed
    found: Open | None  # of one that is not closed
    blocked: Blocked | None
    currency: str | None
    tenants: int
    exact: int
    rounded: int

    @property
    def complete_until(self) -> datetime | None:
        if self.period is not None:
            return self.period.complete_until
        return None if self.found is None else self.found.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One tenant's month. `ledger` None: not asked for."""

    tenant: UUID
    name: str
    statement: str | None
    billed: TenantTotal | None
    used: Tokens
    charged: Tokens
    ledger: Tokens | None
    unpriced: int
    unknown: int

    @property
    def agrees(self) -> bool:
        """What has no price is used and not charged: that is known, and no disagreement. More charged than
        used is one whatever has a price."""
        same_as_ledger = self.ledger is None or self.ledger == self.used
        within = all(one <= other for one, other in zip(self.charged, self.used, strict=True))
        return same_as_ledger and (self.charged == self.used or (self.unpriced > 0 and within))


@dataclass(frozen=True, slots=True)
class TenantsOfMonth:
    complete_until: datetime | None
    rows: list[Compared]


class Periods:
    """Operators only. `grace`: what the job that closes months waits after their end."""

    def __init__(self, db: Database, grace: timedelta) -> None:
        self._db = db
        self._grace = grace

    async def months(self, before: date | None, limit: int) -> list[PlatformMonth]:
        """Newest first, below the month `before`: from the first with usage to the one that it is now."""
        async with self._db.system_reader() as session:
            until = await _complete_until(session)
            wanted = _open_months(await repository.oldest_open(session), before)[:limit]
            shown = [await self._not_closed(session, month, until) for month in wanted]
            if len(shown) < limit:
                closed = await repository.closed(session, before, limit - len(shown))
                shown += [_closed(each) for each in closed]
        return shown

    async def _not_closed(self, session: SystemRead, month: date, until: datetime | None) -> PlatformMonth:
        found = await look(session, month, until)
        totals = await repository.totals(session, month)
        has_ended = end_of(month) <= datetime.now(UTC)
        return PlatformMonth(
            month=month,
            period=None,
            found=found,
            blocked=found.blocked(month, self._grace) if has_ended else None,
            currency=totals[0].currency if totals else None,
            tenants=len(totals),
            exact=sum(each.exact for each in totals),
            rounded=sum(round_half_up(each.exact, each.currency).units for each in totals),
        )

    async def tenants(self, month: date, after: UUID | None, limit: int, *, ledger: bool) -> TenantsOfMonth:
        """By id, after one. `ledger`: count its rows anew, day by day, so that no statement takes long."""
        async with self._db.system_reader() as session:
            period = await repository.find(session, month)
            until = await _complete_until(session) if period is None else period.complete_until
            named = await repository.tenants_of(session, month, after, limit)
            ids = [tenant for tenant, _ in named]
            start, end = start_of(month), end_of(month)
            used = await repository.tokens(session, "used", ids, start, end)
            charged = await repository.tokens(session, "charged", ids, start, end)
            billed = await repository.billed(session, month, ids)
            statements = await repository.statements_of(session, month, ids)
            unpriced = await repository.unpriced_of(session, month, ids)
            unknown = await repository.uncounted_of(session, month, ids)
            counted = await _ledger(session, month, ids) if ledger else {}
        rows = [
            Compared(
                tenant=tenant,
                name=name,
                statement=statements.get(tenant),
                billed=billed.get(tenant),
                used=used.get(tenant, NO_TOKENS),
                charged=charged.get(tenant, NO_TOKENS),
                ledger=counted.get(tenant, NO_TOKENS) if ledger else None,
                unpriced=unpriced.get(tenant, 0),
                unknown=unknown.get(tenant, 0),
            )
            for tenant, name in named
        ]
        return TenantsOfMonth(until, rows)


async def _complete_until(session: SystemRead) -> datetime | None:
    """Whatever ended before is charged, of whichever tenant."""
    journals = await journals_complete_until(session)
    waiting = await repository.earliest_waiting(session)
    return journals if journals is None or waiting is None else min(journals, waiting)


async def _ledger(session: SystemRead, month: date, tenants: list[UUID]) -> dict[UUID, Tokens]:
    found: dict[UUID, Tokens] = {}
    start = start_of(month)
    while start < end_of(month):
        end = start + timedelta(days=1)
        for tenant, day in (await repository.tokens(session, "ledger", tenants, start, end)).items():
            before = found.get(tenant, NO_TOKENS)
            found[tenant] = (before[0] + day[0], before[1] + day[1], before[2] + day[2])
        start = end
    return found


def _open_months(oldest: date | None, before: date | None) -> list[date]:
    """From the oldest to the one that it is now, newest first."""
    found: list[date] = []
    month, now = oldest, month_of(datetime.now(UTC))
    while month is not None and month <= now:
        if before is None or month < before:
            found.append(month)
        month = next_month(month)
    return found[::-1]


def _closed(each: ClosedMonth) -> PlatformMonth:
    return PlatformMonth(
        month=each.period.month,
        period=each.period,
        found=None,
        blocked=None,
        currency=each.currency,
        tenants=each.tenants,
        exact=each.exact,
        rounded=each.rounded,
    )
