"""Wire types of the platform's months. Money is a decimal string with up to twelve decimals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec

from gateway.billing.money import amount_text, coins_text, round_half_up
from gateway.billing.months import end_of, month_text, start_of
from gateway.billing.periods.blocked import Blocked
from gateway.billing.periods.platform import Compared, PlatformMonth
from gateway.paging import Page


class PlatformPeriodOut(msgspec.Struct, frozen=True, kw_only=True):
    """A month of all tenants. `ended`: over and not closed; `blocked` says why, and null that it is about to
    be. What is waiting, unknown or unpriced up to its end, of months before it too, is in no
    amount."""

    month: str
    zone: Literal["UTC"] = "UTC"
    start: datetime
    end: datetime
    status: Literal["open", "ended", "closed"]
    blocked: Blocked | None
    complete_until: datetime | None
    closed_at: datetime | None
    currency: str | None  # null = nothing was charged
    tenants: int  # that are billed something
    exact: str
    total: str  # of the tenants' statements, each rounded once
    waiting_buckets: int
    unknown_requests: int
    unpriced_buckets: int

    @classmethod
    def of(cls, found: PlatformMonth) -> PlatformPeriodOut:
        looked, end = found.found, end_of(found.month)
        ended: Literal["open", "ended"] = "ended" if end <= datetime.now(UTC) else "open"
        return cls(
            month=month_text(found.month),
            start=start_of(found.month),
            end=end,
            status=ended if found.period is None else "closed",
            blocked=found.blocked,
            complete_until=found.complete_until,
            closed_at=None if found.period is None else found.period.closed_at,
            currency=found.currency,
            tenants=found.tenants,
            exact=amount_text(found.exact),
            total=coins_text(found.rounded, found.currency or ""),
            waiting_buckets=0 if looked is None else looked.waiting,
            unknown_requests=0 if looked is None else looked.uncounted,
            unpriced_buckets=0 if looked is None else looked.unpriced,
        )


class PlatformPeriodPage(Page[PlatformPeriodOut], frozen=True, kw_only=True):
    data: list[PlatformPeriodOut]


class TokensOut(msgspec.Struct, frozen=True):
    prompt: int
    cached: int  # of the prompt's
    completion: int


class PeriodTenantOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant is billed in a month, and whether what it used in it is what it is charged for. `used`:
    as summed by quarters of an hour; `ledger`: counted anew from its rows, when asked for; `agrees`: that all
    that is given here is the same, but for what has no price."""

    tenant: UUID
    name: str
    statement: str | None
    currency: str | None
    exact: str
    total: str
    used: TokensOut
    charged: TokensOut
    ledger: TokensOut | None
    unpriced_buckets: int
    unknown_requests: int
    agrees: bool

    @classmethod
    def of(cls, found: Compared) -> PeriodTenantOut:
        exact = 0 if found.billed is None else found.billed.exact
        currency = None if found.billed is None else found.billed.currency
        return cls(
            tenant=found.tenant,
            name=found.name,
            statement=found.statement,
            currency=currency,
            exact=amount_text(exact),
            total=coins_text(round_half_up(exact, currency or "").units, currency or ""),
            used=TokensOut(*found.used),
            charged=TokensOut(*found.charged),
            ledger=None if found.ledger is None else TokensOut(*found.ledger),
            unpriced_buckets=found.unpriced,
            unknown_requests=found.unknown,
            agrees=found.agrees,
        )


class PeriodTenantPage(Page[PeriodTenantOut], frozen=True, kw_only=True):
    """`complete_until`: of the month as it stands."""

    month: str
    complete_until: datetime | None
    data: list[PeriodTenantOut]
