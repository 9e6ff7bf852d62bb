"""What must be added to the charges so that they equal the usage. Plain data and integers: no database.

A bucket of a tenant is charged under one version of the price book. That is the one under which it is charged
already (so a version that begins in the past moves nothing by itself), else the one in force at the bucket,
or the one that a re-rating names. Of each line of the bucket, wanted less charged is what is added: nothing
when it is done again, a difference when late rows came, and under another version the reversal of the old
charge and the new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from gateway.billing.months import month_of, next_month
from gateway.billing.price_book.prices import Book, Edition, Selector

Bucket = tuple[UUID, datetime]
"""A tenant and a quarter of an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """What tells one line of usage from another."""

    tenant_id: UUID
    bucket: datetime
    key_id: str
    base_id: str
    owner_id: UUID | None
    adapter_name: str | None
    adapter_version: int | None
    artefact: str | None
    service_class: str
    source: str

    @property
    def place(self) -> Bucket:
        return self.tenant_id, self.bucket

    @property
    def selector(self) -> Selector:
        return Selector(self.base_id, self.owner_id, self.adapter_name, self.service_class)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Billed requests and tokens; `input` are the prompt tokens that no prefix cache held. As a difference
    each may be negative."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(
            self.requests - other.requests,
            self.input - other.input,
            self.cached - other.cached,
            self.output - other.output,
        )

    @property
    def tokens(self) -> int:
        return self.input + self.cached + self.output

    def __bool__(self) -> bool:
        return self != Quantity()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a bucket's rollup."""

    grain: Grain
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class Rate:
    """The price under which a line is charged; prices are units a token: input, cached input, output."""

    version: int
    price_id: UUID
    currency: str
    prices: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Charge:
    """So much of a line at a rate: what is charged so far, or what is to be added."""

    grain: Grain
    rate: Rate
    quantity: Quantity

    @property
    def amount(self) -> int:
        """Units of 10⁻¹² of the currency, exact."""
        quantity = self.quantity
        counts = (quantity.input, quantity.cached, quantity.output)
        return sum(tokens * price for tokens, price in zip(counts, self.rate.prices, strict=True))


@dataclass(frozen=True, slots=True)
class Outcome:
    """`charges` are to be added, reversals before what replaces them; `unpriced` has usage and no price."""

    charges: list[Charge]
    unpriced: set[Bucket]


def rate(lines: Sequence[Line], charged: Sequence[Charge], book: Book, under: int | None = None) -> Outcome:
    """`charged`: the sums of the charges so far of the same buckets, by grain and rate. `under`: the version
    that a re-rating names; it must be in the book."""
    sticky = _versions(charged)
    editions = {place: _edition(place, sticky, book, under) for place in {line.grain.place for line in lines}}
    wanted = {}
    for line in lines:
        edition = editions[line.grain.place]
        if edition is not None and line.quantity:
            wanted[line.grain, _rate(line.grain, edition)] = line.quantity
    have = {(each.grain, each.rate): each.quantity for each in charged}
    found = [
        Charge(*line, difference)
        for line in {**have, **wanted}
        if (difference := wanted.get(line, Quantity()) - have.get(line, Quantity()))
    ]
    found.sort(key=_order)
    used = {line.grain.place for line in lines if line.quantity}
    return Outcome(found, {place for place in used if editions[place] is None})


def billed_month(bucket: datetime, closed: set[date]) -> date:
    """The month of the bucket, or the first that is open: a closed month takes nothing more, and one before
    it is never closed any more (usage of a clock that was wrong): what it took would be on no statement."""
    month, last = month_of(bucket), max(closed, default=None)
    return month if last is None or month > last else next_month(last)


def total(charges: Iterable[Charge]) -> int:
    return sum(charge.amount for charge in charges)


def _versions(charged: Sequence[Charge]) -> dict[Bucket, int]:
    """The version under which each bucket stands: the only one whose charges don't cancel out."""
    tokens: dict[tuple[Bucket, int], int] = defaultdict(int)
    for each in charged:
        tokens[each.grain.place, each.rate.version] += each.quantity.tokens
    return {place: version for (place, version), left in tokens.items() if left > 0}


def _edition(place: Bucket, sticky: Mapping[Bucket, int], book: Book, under: int | None) -> Edition | None:
    version = under if under is not None else sticky.get(place)
    if version is None:
        return book.in_force_at(place[1])
    edition = book.edition(version)
    assert edition is not None, "versions are never removed"
    return edition


def _rate(grain: Grain, edition: Edition) -> Rate:
    row = edition.price_of(grain.selector)
    return Rate(edition.version, row.id, edition.currency, row.of_source(grain.source))


def _order(charge: Charge) -> tuple[object, ...]:
    grain = charge.grain
    return (
        grain.bucket,
        str(grain.tenant_id),
        grain.key_id,
        grain.base_id,
        str(grain.owner_id or ""),
        grain.adapter_name or "",
        grain.adapter_version or 0,
        grain.artefact or "",
        grain.service_class,
        grain.source,
        charge.quantity.tokens >= 0,
        charge.rate.version,
    )
