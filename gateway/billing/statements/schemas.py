"""Wire types of periods and statements. Exact amounts have up to twelve decimals, totals the currency's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal
from uuid import UUID

import msgspec

from gateway.billing.money import amount_text, coins_text, price_text
from gateway.billing.months import month_text
from gateway.billing.statements.repository import StatementLine
from gateway.paging import Page


class LineOut(msgspec.Struct, frozen=True, kw_only=True):
    """`unit_price` is for a million tokens. `used_month` is the statement's, unless the line corrects one
    that is closed."""

    meter: str
    base_id: str
    owner: UUID | None
    adapter: str | None
    service_class: str
    used_month: str
    correction: bool
    tokens: int
    unit_price: str
    amount: str
    price_book_version: int
    price: UUID

    @classmethod
    def of(cls, line: StatementLine, month: date) -> LineOut:
        return cls(
            meter=str(line.metered.meter),
            base_id=line.base_id,
            owner=line.owner_id,
            adapter=line.adapter,
            service_class=line.service_class,
            used_month=month_text(line.used_month),
            correction=line.used_month != month,
            tokens=line.metered.tokens,
            unit_price=price_text(line.metered.price),
            amount=amount_text(line.metered.amount),
            price_book_version=line.version,
            price=line.price_id,
        )


class StatementOut(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts of the lines sum to `exact`, `exact` and `rounding` to `total`: rounded once, here. What is
    unknown or has no price is in no amount."""

    id: str | None  # null = a preview: the month is open
    status: Literal["open", "closed"]
    month: str
    zone: Literal["UTC"] = "UTC"
    start: datetime
    end: datetime
    complete_until: datetime | None
    issued_at: datetime | None
    currency: str | None  # null = nothing was charged
    lines: list[LineOut]
    exact: str
    rounding: str
    total: str
    unknown_requests: int
    has_unpriced: bool


@dataclass(frozen=True, slots=True)
class Period:
    """A month of a tenant's. `exact` in units of 10⁻¹² of the currency, `rounded` in its coins."""

    first_day: date
    statement: str | None
    currency: str
    exact: int
    rounded: int


class PeriodOut(msgspec.Struct, frozen=True, kw_only=True):
    month: str
    status: Literal["open", "closed"]
    statement: str | None
    currency: str
    exact: str
    total: str

    @classmethod
    def of(cls, period: Period) -> PeriodOut:
        return cls(
            month=month_text(period.first_day),
            status="open" if period.statement is None else "closed",
            statement=period.statement,
            currency=period.currency,
            exact=amount_text(period.exact),
            total=coins_text(period.rounded, period.currency),
        )


class PeriodList(Page[PeriodOut], frozen=True, kw_only=True):
    """Open months hold whatever ended before `complete_until`; null = nobody knows."""

    zone: Literal["UTC"] = "UTC"
    complete_until: datetime | None
    data: list[PeriodOut]
