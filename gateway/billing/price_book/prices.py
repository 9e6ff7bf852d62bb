"""Which price holds for a piece of usage. Plain data: no database, no clock.

The version is the one in force at the bucket of the request's end: of those that are effective by then the
last to become so, and of two that begin at once the later made. Within it the most particular row wins:

    the adapter by its name   over   any adapter      (the base itself has rows of its own)
    a named base              over   any base
    a named service class     over   any class

compared in that order. Each version has a row for any base and any class both of the base itself and of any
adapter, and no two rows with the same selectors, so exactly one row wins, always: no gap, no overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

MAX_REMEMBERED = 10_000
"""Choices that a version keeps, so that they are made once."""


class ModelKind(StrEnum):
    BASE = "base"
    ANY_ADAPTER = "any_adapter"
    ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class Selector:
    """What was used. `adapter_name` None = the base itself."""

    base_id: str
    owner_id: UUID | None
    adapter_name: str | None
    service_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """Prices are units of 10⁻¹² of the currency a token (`gateway/billing/money.py`). None = any."""

    id: UUID
    kind: ModelKind
    base_id: str | None
    owner_id: UUID | None
    adapter_name: str | None
    service_class: str | None
    input: int
    cached_input: int
    output: int
    answer_input: int
    answer_output: int

    @property
    def selectors(self) -> tuple[object, ...]:
        return (self.kind, self.base_id, self.owner_id, self.adapter_name, self.service_class)

    @property
    def particularity(self) -> tuple[bool, bool, bool]:
        """The greatest wins."""
        return (self.kind is ModelKind.ADAPTER, self.base_id is not None, self.service_class is not None)

    def refusal(self, used: Selector) -> str | None:
        """Why this row is not for that usage; None when it is."""
        if (self.kind is ModelKind.BASE) != (used.adapter_name is None):
            return "is for the base itself" if self.kind is ModelKind.BASE else "is for adapters"
        if self.kind is ModelKind.ADAPTER and (self.owner_id, self.adapter_name) != (
            used.owner_id,
            used.adapter_name,
        ):
            return "is for another adapter"
        if self.base_id not in (None, used.base_id):
            return "is for another base"
        if self.service_class not in (None, used.service_class):
            return "is for another service class"
        return None

    def of_source(self, source: str) -> tuple[int, int, int]:
        """(input, cached input, output) a token; an answer out of the response cache has its own, and finds
        no prefix in any cache."""
        if source == "cache":
            return self.answer_input, self.answer_input, self.answer_output
        return self.input, self.cached_input, self.output


class PriceBookInvalid(ValueError):
    """A version that would leave a gap or an overlap. `row` is the place in the list, where one is to
    blame."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def check_rows(rows: Sequence[PriceRow]) -> None:
    """Raises `PriceBookInvalid`."""
    seen: dict[tuple[object, ...], int] = {}
    for place, row in enumerate(rows):
        if (before := seen.setdefault(row.selectors, place)) != place:
            raise PriceBookInvalid(f"Rows {before} and {place} have the same selectors.", place)
    for kind in (ModelKind.BASE, ModelKind.ANY_ADAPTER):
        if (kind, None, None, None, None) not in seen:
            raise PriceBookInvalid(
                f"There must be a row of '{kind}' for any base and any service class, so that nothing is"
                " without a price."
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """The row that wins, those that it beat, most particular first, and why the others are out."""

    winner: PriceRow
    beaten: list[PriceRow]
    refused: list[tuple[PriceRow, str]]

    @property
    def reason(self) -> str:
        named = zip(
            ("the adapter by its name", "this base", "this service class"),
            self.winner.particularity,
            strict=True,
        )
        parts = [words for words, holds in named if holds]
        if not parts:
            return "No row is more particular: it is the one for all others."
        return f"It is the most particular row: it names {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Edition:
    """One version of the book, checked."""

    version: int
    currency: str
    effective_from: datetime
    rows: tuple[PriceRow, ...]
    _found: dict[Selector, PriceRow] = field(default_factory=dict, compare=False, repr=False)

    def price_of(self, used: Selector) -> PriceRow:
        found = self._found.get(used)
        if found is None:
            if len(self._found) >= MAX_REMEMBERED:
                self._found.clear()
            found = self._found[used] = self.choose(used).winner
        return found

    def choose(self, used: Selector) -> Choice:
        told = [(row, row.refusal(used)) for row in self.rows]
        fitting = [row for row, why in told if why is None]
        fitting.sort(key=lambda row: row.particularity, reverse=True)
        assert fitting, "a checked version has a row for everything"
        return Choice(fitting[0], fitting[1:], [(row, why) for row, why in told if why is not None])


class Book:
    """All versions."""

    def __init__(self, editions: Iterable[Edition]) -> None:
        self._by_version = {edition.version: edition for edition in editions}
        self._by_time = sorted(
            self._by_version.values(), key=lambda edition: (edition.effective_from, edition.version)
        )

    def in_force_at(self, bucket: datetime) -> Edition | None:
        """None before the first."""
        found = None
        for edition in self._by_time:
            if edition.effective_from > bucket:
                break
            found = edition
        return found

    @property
    def editions(self) -> list[Edition]:
        return list(self._by_time)

    def edition(self, version: int) -> Edition | None:
        return self._by_version.get(version)
