"""Limits as data: buckets, leases and money counters of as many levels as there are. One list is the same to
the scripts, to their twin and to whoever explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from gateway.limits.amounts import Meter
from gateway.principal import Budget, Limits, Period, Principal, TenantId
from gateway.redis import RedisKey, TenantKeys

if TYPE_CHECKING:
    from gateway.catalog.resolved import Resolved

_REMEMBERED = 10_000


class Level(StrEnum):
    TENANT = "tenant"
    KEY = "key"
    ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class Bucket:
    """`limit` a minute."""

    level: Level
    meter: Meter
    key: RedisKey
    limit: int

    @property
    def id(self) -> str:
        return f"{self.level}.{self.meter}_per_minute"


@dataclass(frozen=True, slots=True)
class Lease:
    """`limit` requests at a time."""

    level: Level
    key: RedisKey
    limit: int

    @property
    def id(self) -> str:
        return f"{self.level}.max_parallel"


@dataclass(frozen=True, slots=True)
class Counter:
    """Money spent in one period, of which `limit` is the budget (units of 10⁻¹²)."""

    tenant: TenantId
    key_id: str | None  # None = the whole tenant's
    period: Period
    first: date
    key: RedisKey
    holds: RedisKey  # what running requests have reserved
    limit: int
    hard: bool

    @property
    def level(self) -> Level:
        return Level.TENANT if self.key_id is None else Level.KEY

    @property
    def id(self) -> str:
        return f"{self.level}.budget_{self.period}"

    @property
    def start(self) -> datetime:
        return datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        if self.period is Period.DAY:
            return self.start + timedelta(days=1)
        return (self.start + timedelta(days=31)).replace(day=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one request is held to. The door knows tenant and key; the adapter's joins when the model is
    known."""

    tenant: TenantKeys
    door_buckets: tuple[Bucket, ...]
    door_leases: tuple[Lease, ...]
    buckets: tuple[Bucket, ...]
    leases: tuple[Lease, ...]
    counters: tuple[Counter, ...]

    @property
    def all_buckets(self) -> tuple[Bucket, ...]:
        return (*self.door_buckets, *self.buckets)

    @property
    def all_leases(self) -> tuple[Lease, ...]:
        return (*self.door_leases, *self.leases)

    def of_model(self, resolved: Resolved) -> Plan:
        """With the limits of the model's adapter, if it has any."""
        adapter = resolved.adapter
        if adapter is None or adapter.limits == Limits():
            return self
        names = ("adapter", resolved.base_id[:16], str(adapter.owner), adapter.name)  # names are an owner's
        more = _buckets(self.tenant, Level.ADAPTER, names, adapter.limits)
        leases = _leases(self.tenant, Level.ADAPTER, names, adapter.limits)
        return replace(self, buckets=(*self.buckets, *more), leases=(*self.leases, *leases))


def plan_of(principal: Principal, today: date) -> Plan:
    """Kept, so that a request costs a look-up."""
    return _plan(
        principal.tenant,
        principal.key_id,
        principal.tenant_limits,
        principal.key_limits,
        principal.budgets,
        today,
    )


def today() -> date:
    """In UTC."""
    return datetime.now(UTC).date()


def counter_of(tenant: TenantId, key_id: str | None, budget: Budget, today: date) -> Counter:
    """Of the period in which `today` lies."""
    first = today if budget.period is Period.DAY else today.replace(day=1)
    owner = ("budget",) if key_id is None else ("key", key_id, "budget")
    keys = TenantKeys(tenant)
    key = keys.key(*owner, budget.period, first.isoformat())
    holds = keys.key(*owner, budget.period, first.isoformat(), "holds")
    return Counter(tenant, key_id, budget.period, first, key, holds, budget.amount, budget.hard)


@lru_cache(maxsize=_REMEMBERED)
def _plan(
    tenant: TenantId,
    key_id: str,
    tenant_limits: Limits,
    key_limits: Limits,
    budgets: tuple[Budget, ...],
    today: date,
) -> Plan:
    keys = TenantKeys(tenant)
    named = ("key", key_id)
    buckets = [
        *_buckets(keys, Level.TENANT, (), tenant_limits),
        *_buckets(keys, Level.KEY, named, key_limits),
    ]
    return Plan(
        keys,
        door_buckets=tuple(each for each in buckets if each.meter is Meter.REQUESTS),
        door_leases=(
            *_leases(keys, Level.TENANT, (), tenant_limits),
            *_leases(keys, Level.KEY, named, key_limits),
        ),
        buckets=tuple(each for each in buckets if each.meter is not Meter.REQUESTS),
        leases=(),
        counters=tuple(counter_of(tenant, key_id if each.of_key else None, each, today) for each in budgets),
    )


def _buckets(keys: TenantKeys, level: Level, names: tuple[str, ...], limits: Limits) -> Iterator[Bucket]:
    for meter, limit in (
        (Meter.REQUESTS, limits.requests_per_minute),
        (Meter.TOKENS, limits.tokens_per_minute),
        (Meter.INPUT, limits.input_tokens_per_minute),
        (Meter.OUTPUT, limits.output_tokens_per_minute),
    ):
        if limit is not None:
            yield Bucket(level, meter, keys.key(*names, meter), limit)


def _leases(keys: TenantKeys, level: Level, names: tuple[str, ...], limits: Limits) -> Iterator[Lease]:
    if limits.max_parallel is not None:
        yield Lease(level, keys.key(*names, "leases"), limits.max_parallel)
