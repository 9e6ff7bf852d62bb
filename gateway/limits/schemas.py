"""Wire types of limits and budgets. Absent means unchanged, null means no limit. Money is a decimal text."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.billing.money import amount_text, units_of
from gateway.models import Adapter, ApiKey, BudgetRow, Tenant
from gateway.principal import Period

Limit = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Amount = Annotated[
    str,
    Meta(
        pattern=r"^(?!0+(\.0+)?$)[0-9]{1,12}(\.[0-9]{1,12})?$",
        description="More than nothing, of the price book's currency.",
        examples=["250.00"],
    ),
]
Percent = Annotated[int, Meta(ge=1, le=1_000)]

BUCKETS = (
    "requests_per_minute",
    "tokens_per_minute",
    "input_tokens_per_minute",
    "output_tokens_per_minute",
    "max_parallel",
)


class BudgetIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    amount: Amount
    hard: bool = True  # false: it only tells, by the event `budget.threshold`
    thresholds: Annotated[list[Percent], Meta(max_length=10)] = msgspec.field(
        default_factory=lambda: [50, 80, 100]
    )

    def row(self, period: Period) -> BudgetRow:
        """For whomever it is set; its owner is still to be named."""
        return BudgetRow(
            period=period.value,
            amount=Decimal(units_of(self.amount)),
            hard=self.hard,
            thresholds=sorted(set(self.thresholds)),
        )


class BucketsPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an adapter."""

    requests_per_minute: Limit | UnsetType | None = UNSET
    tokens_per_minute: Limit | UnsetType | None = UNSET
    input_tokens_per_minute: Limit | UnsetType | None = UNSET
    output_tokens_per_minute: Limit | UnsetType | None = UNSET
    max_parallel: Limit | UnsetType | None = UNSET

    def columns(self) -> dict[str, int | None]:
        """Those that were named."""
        named = {name: getattr(self, name) for name in BUCKETS}
        return {name: value for name, value in named.items() if value is not UNSET}


class LimitsPatch(BucketsPatch, frozen=True, forbid_unknown_fields=True):
    """Of a tenant or a key."""

    budget_day: BudgetIn | UnsetType | None = UNSET
    budget_month: BudgetIn | UnsetType | None = UNSET

    def budgets(self) -> dict[Period, BudgetIn | None]:
        """Those that were named."""
        named = {Period.DAY: self.budget_day, Period.MONTH: self.budget_month}
        return {period: value for period, value in named.items() if not isinstance(value, UnsetType)}


class BudgetOut(msgspec.Struct, frozen=True):
    amount: str
    hard: bool
    thresholds: list[int]  # per cent at which it tells

    @classmethod
    def of(cls, row: BudgetRow) -> BudgetOut:
        return cls(amount_text(int(row.amount)), row.hard, list(row.thresholds))


class BucketsOut(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_minute: int | None
    tokens_per_minute: int | None
    input_tokens_per_minute: int | None
    output_tokens_per_minute: int | None
    max_parallel: int | None

    def fields(self) -> dict[str, Any]:
        """All of it can be changed."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of(cls, row: Adapter) -> BucketsOut:
        return cls(**_columns(row))


class LimitsOut(BucketsOut, frozen=True, kw_only=True):
    budget_day: BudgetOut | None
    budget_month: BudgetOut | None

    @classmethod
    def with_budgets(cls, row: Tenant | ApiKey, budgets: list[BudgetRow]) -> LimitsOut:
        found = {each.period: BudgetOut.of(each) for each in budgets}
        return cls(**_columns(row), budget_day=found.get(Period.DAY), budget_month=found.get(Period.MONTH))


class LimitNow(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and what is left of it. Money is a text, all else a number."""

    limit_id: str
    level: Literal["tenant", "key", "adapter"]
    limit: int | str
    remaining: int | str
    reserved: int | str | None  # by requests that run; null for buckets, which don't tell
    reset: str | None  # until all of it is there again, as Go writes durations; null: nobody can know
    resets_at: datetime | None
    hard: bool = True


class LimitsNow(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[LimitNow]


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    requests: int
    input_tokens: int
    output_tokens: int  # most
    tokens: int
    money: str | None  # most; null: no budget is set, or no price is known


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What the request would be told now. Nothing was taken."""

    allowed: bool
    needed: Needed
    refused_by: dict[str, Any] | None  # the `limit` object of the 429
    message: str | None
    limits: list[LimitNow]


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that is only counted."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    prompt_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    n: Annotated[int, Meta(ge=1, le=8)] = 1


def _columns(row: Tenant | ApiKey | Adapter) -> dict[str, Any]:
    return {name: getattr(row, name) for name in BUCKETS}
