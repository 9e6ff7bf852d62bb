"""The rules of the price book: what may become a version, and which price holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.audit.service import Actor, Change, record
from gateway.billing.charging import repository as charging
from gateway.billing.months import bucket_of, is_bucket
from gateway.billing.price_book import repository
from gateway.billing.price_book.in_force import LEAD_S
from gateway.billing.price_book.prices import (
    Choice,
    Edition,
    PriceBookInvalid,
    PriceRow,
    Selector,
    check_rows,
)
from gateway.billing.price_book.schemas import VersionIn
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.models import PriceBookVersion, UsageLedger

MAX_VERSIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Cost:
    units: int  # of 10⁻¹² of the currency, exact
    currency: str


class PriceBook:
    """Operators only. Versions are added and never changed."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, actor: Actor, wanted: VersionIn) -> tuple[PriceBookVersion, list[PriceRow]]:
        """The next version. Raises `BadRequest` for one with a gap or an overlap, and `Conflict` for another
        currency than the book's."""
        rows = _rows(wanted)
        effective_from = _effective(wanted)
        async with self._db.system_session() as session:
            await repository.lock(session)
            last = await repository.last_version(session)
            if last is not None and last.currency != wanted.currency:
                raise Conflict(f"The price book is in {last.currency}.", param="currency")
            if await repository.count(session) >= MAX_VERSIONS:
                raise Conflict(f"A price book has at most {MAX_VERSIONS} versions.")
            version = PriceBookVersion(
                version=1 if last is None else last.version + 1,
                currency=wanted.currency,
                effective_from=effective_from,
                note=wanted.note,
                created_by=actor.name,
            )
            await repository.add(session, version, rows)
            await charging.lock(session)
            await charging.retry_unpriced(session, effective_from)
            _require_lead(wanted)  # again, for the locks may have taken their time
            details = {"effective_from": effective_from.isoformat(), "prices": len(rows), "note": wanted.note}
            record(session, actor, Change("price_book.create", str(version.version), None, details))
        return version, rows

    async def page(
        self, before: int | None, limit: int, since: datetime | None = None, until: datetime | None = None
    ) -> list[PriceBookVersion]:
        """Newest first, of those made in [since, until)."""
        async with self._db.system_reader() as session:
            return await repository.page(session, before, limit, since, until)

    async def get(self, version: int) -> tuple[PriceBookVersion, list[PriceRow]]:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            found = await repository.find(session, version)
            if found is None:
                raise NotFound("There is no such version of the price book.")
            return found, await repository.rows_of(session, version)

    async def choose(self, version: int | None, used: Selector) -> tuple[Edition, Choice]:
        """Of a version, or of the one in force now. Raises `NotFound`."""
        async with self._db.system_reader() as session:
            book = await repository.read_book(session)
        now = bucket_of(datetime.now(UTC))
        edition = book.in_force_at(now) if version is None else book.edition(version)
        if edition is None:
            raise NotFound("There is no such version of the price book.")
        return edition, edition.choose(used)

    async def cost_of(self, row: UsageLedger) -> Cost | None:
        """Of what it was billed, under the version that it names; None where it names none."""
        if row.price_book_version is None:
            return None
        used = Selector(row.base_id, row.owner_id, row.adapter_name, row.service_class)
        async with self._db.system_reader() as session:
            book = await repository.find(session, row.price_book_version)
            if book is None:
                return None
            rows = tuple(await repository.rows_of(session, book.version))
        edition = Edition(book.version, book.currency, book.effective_from, rows)
        prices = edition.price_of(used).of_source(row.source)
        uncached = row.billed_prompt_tokens - row.billed_cached_tokens
        counts = (uncached, row.billed_cached_tokens, row.billed_completion_tokens)
        units = sum(tokens * price for tokens, price in zip(counts, prices, strict=True))
        return Cost(units, edition.currency)


def _rows(wanted: VersionIn) -> list[PriceRow]:
    try:
        rows = [price.row(place) for place, price in enumerate(wanted.prices)]
        check_rows(rows)
    except PriceBookInvalid as error:
        param = "prices" if error.row is None else f"prices[{error.row}]"
        raise BadRequest(str(error), param=param, code="invalid_price_book") from error
    return rows


def _effective(wanted: VersionIn) -> datetime:
    moment = wanted.effective_from
    if not 2000 <= moment.year <= 9000 or not is_bucket(moment):  # the ends of time have no other zone
        raise BadRequest(
            "'effective_from' must be a quarter of an hour, such as 2026-12-01T00:00:00Z: usage is charged by"
            " those, each under one version.",
            param="effective_from",
            code="invalid_value",
        )
    _require_lead(wanted)
    return moment.astimezone(UTC)


def _require_lead(wanted: VersionIn) -> None:
    """What ends from now on may be told a version that is known now (`in_force.py`)."""
    if wanted.effective_from < datetime.now(UTC) + timedelta(seconds=LEAD_S) and not wanted.retroactive:
        raise BadRequest(
            f"'effective_from' has passed, or is less than {LEAD_S:.0f} s ahead. With 'retroactive' the"
            " version holds for what is not rated yet; what is rated already needs a re-rating.",
            param="effective_from",
            code="invalid_value",
        )
