"""Wire types of the price book. Prices are decimal strings per million tokens; null selects any."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.billing.money import parse_price, price_text
from gateway.billing.price_book.prices import Choice, ModelKind, PriceBookInvalid, PriceRow
from gateway.ids import uuid7
from gateway.models import PriceBookVersion
from gateway.paging import Page

PriceText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,7}(\.[0-9]{1,6})?$",
        description="Per million tokens, at most six decimals, at most 1000000.",
    ),
]
AdapterName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
BaseId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
ServiceClass = Literal["interactive", "standard", "batch"]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$", description="ISO 4217.")]
Moment = Annotated[datetime, Meta(tz=True, description="A quarter of an hour: :00, :15, :30 or :45.")]
MAX_ROWS = 2_000


class PriceIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`cached_input` is for prompt tokens found in the prefix cache; `answer_*` for answers out of the
    response cache."""

    model: ModelKind
    input: PriceText
    cached_input: PriceText
    output: PriceText
    answer_input: PriceText
    answer_output: PriceText
    base_id: BaseId | None = None
    owner: UUID | None = None
    adapter: AdapterName | None = None
    service_class: ServiceClass | None = None

    def row(self, place: int) -> PriceRow:
        """Raises `PriceBookInvalid`."""
        if (self.model is ModelKind.ADAPTER) != (self.owner is not None) or (self.owner is None) != (
            self.adapter is None
        ):
            raise PriceBookInvalid("'owner' and 'adapter' go with model 'adapter', and only together.", place)
        try:
            return PriceRow(
                id=uuid7(),
                kind=self.model,
                base_id=self.base_id,
                owner_id=self.owner,
                adapter_name=self.adapter,
                service_class=self.service_class,
                input=parse_price(self.input),
                cached_input=parse_price(self.cached_input),
                output=parse_price(self.output),
                answer_input=parse_price(self.answer_input),
                answer_output=parse_price(self.answer_output),
            )
        except ValueError as error:
            raise PriceBookInvalid(f"Row {place}: {error}.", place) from error


class VersionIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole list. It holds from `effective_from` until another version does; a moment that has passed must
    be meant (`retroactive`), and changes nothing that is rated already: re-rate for that."""

    effective_from: Moment
    prices: Annotated[list[PriceIn], Meta(min_length=2, max_length=MAX_ROWS)]
    currency: Currency = "USD"
    note: Annotated[str, Meta(max_length=500)] = ""
    retroactive: bool = False


class PriceOut(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    model: ModelKind
    base_id: str | None
    owner: UUID | None
    adapter: str | None
    service_class: str | None
    input: str
    cached_input: str
    output: str
    answer_input: str
    answer_output: str

    @classmethod
    def of(cls, row: PriceRow) -> PriceOut:
        return cls(
            id=row.id,
            model=row.kind,
            base_id=row.base_id,
            owner=row.owner_id,
            adapter=row.adapter_name,
            service_class=row.service_class,
            input=price_text(row.input),
            cached_input=price_text(row.cached_input),
            output=price_text(row.output),
            answer_input=price_text(row.answer_input),
            answer_output=price_text(row.answer_output),
        )


class PriceBookOut(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    currency: str
    effective_from: datetime
    note: str
    created_by: str
    created_at: datetime

    @classmethod
    def of(cls, version: PriceBookVersion) -> PriceBookOut:
        return cls(
            version=version.version,
            currency=version.currency,
            effective_from=version.effective_from,
            note=version.note,
            created_by=version.created_by,
            created_at=version.created_at,
        )


class VersionWithPrices(msgspec.Struct, frozen=True, kw_only=True):
    book: PriceBookOut
    prices: list[PriceOut]

    @classmethod
    def of(cls, version: PriceBookVersion, rows: Sequence[PriceRow]) -> VersionWithPrices:
        return cls(book=PriceBookOut.of(version), prices=[PriceOut.of(row) for row in rows])


class PriceBookPage(Page[PriceBookOut], frozen=True, kw_only=True):
    """`in_force`: the version that holds now; null before the first."""

    data: list[PriceBookOut]
    next: int | None
    in_force: int | None


class Refused(msgspec.Struct, frozen=True):
    id: UUID
    reason: str


class ChoiceOut(msgspec.Struct, frozen=True, kw_only=True):
    """Which row wins, and why; what it beat; why the others are out (the first 100)."""

    version: int
    currency: str
    winner: PriceOut
    reason: str
    beaten: list[PriceOut]
    refused: list[Refused]

    @classmethod
    def of(cls, version: int, currency: str, choice: Choice) -> ChoiceOut:
        return cls(
            version=version,
            currency=currency,
            winner=PriceOut.of(choice.winner),
            reason=choice.reason,
            beaten=[PriceOut.of(row) for row in choice.beaten],
            refused=[Refused(row.id, why) for row, why in choice.refused[:100]],
        )
