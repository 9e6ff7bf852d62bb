"""Wire types of re-rating. Money is a decimal string with up to twelve decimals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.billing.money import amount_text
from gateway.billing.price_book.schemas import VersionIn

Moment = Annotated[datetime, Meta(tz=True, description="A quarter of an hour: :00, :15, :30 or :45.")]


class ReRatingIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """By the time of the requests' ends, `start` inclusive, `end` exclusive. Absent tenant = all."""

    start: Moment
    end: Moment
    tenant: UUID | None = None
    dry_run: bool = True


class PreviewIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A version that may be made, and the usage to look at: what ended in [start, end)."""

    book: VersionIn
    start: Moment
    end: Moment
    tenant: UUID | None = None


class RatingOut(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant's usage in the window comes to, before and after."""

    tenant: UUID
    name: str
    before: str
    after: str
    difference: str
    charges: int  # rows that are, or would be, appended

    @classmethod
    def of(cls, tenant: UUID, name: str, before: int, difference: int, charges: int) -> RatingOut:
        return cls(
            tenant=tenant,
            name=name,
            before=amount_text(before),
            after=amount_text(before + difference),
            difference=amount_text(difference),
            charges=charges,
        )


class ReRatingOut(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is on each appended charge and in the audit log; null for a dry run."""

    id: UUID | None
    version: int  # the one that it would be, of one that is not made yet
    start: datetime
    end: datetime
    dry_run: bool
    data: list[RatingOut]

    @classmethod
    def of(
        cls, rerating: UUID | None, version: int, wanted: ReRatingIn, data: Sequence[RatingOut]
    ) -> ReRatingOut:
        return cls(
            id=rerating,
            version=version,
            start=wanted.start,
            end=wanted.end,
            dry_run=wanted.dry_run,
            data=list(data),
        )
