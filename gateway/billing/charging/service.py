"""The charging job of the leader, and re-rating: both add what `rating.rate` says is missing, and nothing
else. Either may be cut anywhere and done again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final
from uuid import UUID

import structlog

from gateway.audit.service import Actor, Change, record
from gateway.billing.charging import repository
from gateway.billing.charging.rating import Bucket, Charge, Outcome, rate, total
from gateway.billing.charging.schemas import PreviewIn, RatingOut, ReRatingIn, ReRatingOut
from gateway.billing.metrics import CHARGES, UNPRICED
from gateway.billing.months import is_bucket
from gateway.billing.price_book import repository as price_book
from gateway.billing.price_book.prices import Book, Edition
from gateway.billing.price_book.service import (
    checked_beginning,
    checked_rows,
    next_number,
    require_currency,
)
from gateway.db import Database, SystemRead, SystemWrite
from gateway.errors import BadRequest, Conflict, NotFound, Unavailable
from gateway.ids import uuid7
from gateway.principal import TenantId

log = structlog.get_logger(__name__)

MAX_BUCKETS: Final = 500
"""Charged in one transaction; fewer after one that took too long."""

MAX_RERATED: Final = timedelta(days=93)
MAX_RERATED_TENANTS: Final = 1_000


class Charging:
    """Makes the rollups of stale buckets anew and charges them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._book: Book | None = None
        self._most = MAX_BUCKETS

    async def run_once(self) -> int:
        """Works off what lies in the queue now; gives the number of charges added. Raises `Unavailable`."""
        async with self._db.system_reader() as session:
            last = await repository.last_arrival(session)
        added = 0
        while (did := await self._some(last)) is not None:
            added += did
        async with self._db.system_reader() as session:
            UNPRICED.set(await repository.num_unpriced(session))
        return added

    async def _some(self, last: int) -> int | None:
        """Charges some stale buckets; None when there is none. A statement that got no answer in time is
        tried again with fewer, so that a backlog of busy buckets is worked off all the same."""
        try:
            async with self._db.system_session() as session:
                await repository.lock(session)
                stale = await repository.take_arrivals(session, last, self._most)
                added = await self._charge(session, stale) if stale else None
        except Unavailable:
            self._most = max(1, self._most // 4)
            raise
        self._most = min(MAX_BUCKETS, self._most * 2)
        CHARGES.labels("usage").inc(added or 0)
        return added

    async def _charge(self, session: SystemWrite, stale: set[Bucket]) -> int:
        await repository.rebuild_rollups(session, stale)
        self._book = await price_book.read_book(session, self._book)
        outcome = await _outcome(session, stale, self._book)
        closed = await repository.closed_months(session)
        await repository.add_charges(session, outcome.charges, closed, None)
        await repository.mark_unpriced(session, outcome.unpriced, stale - outcome.unpriced)
        return len(outcome.charges)


@dataclass(slots=True)
class _ReRating:
    """One that runs."""

    actor: Actor
    wanted: ReRatingIn
    version: int
    book: Book
    id: UUID = field(default_factory=uuid7)
    names: dict[UUID, str] = field(default_factory=dict)  # of the tenants it is about


class ReRatings:
    """Operators only."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def rerate(self, actor: Actor, version: int, wanted: ReRatingIn) -> ReRatingOut:
        """Moves what is charged in the window under `version`: appends reversals and new charges, or with
        `dry_run` only says what they would come to. Raises `BadRequest`, `NotFound`, `Conflict`."""
        _check_window(wanted)
        async with self._db.system_reader() as session:
            book = await price_book.read_book(session)
            if book.edition(version) is None:
                raise NotFound("There is no such version of the price book.")
        return await self._run(_ReRating(actor, wanted, version, book))

    async def preview(self, actor: Actor, wanted: PreviewIn) -> ReRatingOut:
        """A dry run under a version that is not made. Raises what its making would, too."""
        rows, begins = checked_rows(wanted.book), checked_beginning(wanted.book)
        window = ReRatingIn(start=wanted.start, end=wanted.end, tenant=wanted.tenant)
        _check_window(window)
        async with self._db.system_reader() as session:
            known = await price_book.read_book(session)
            last = await price_book.last_version(session)
        require_currency(last, wanted.book)
        version = next_number(last)
        book = Book([*known.editions, Edition(version, wanted.book.currency, begins, tuple(rows))])
        return await self._run(_ReRating(actor, window, version, book))

    async def _run(self, running: _ReRating) -> ReRatingOut:
        wanted = running.wanted
        async with self._db.system_reader() as session:
            tenants = await repository.tenants_between(session, wanted.start, wanted.end)
        if wanted.tenant is not None:
            tenants = {tenant: name for tenant, name in tenants.items() if tenant == wanted.tenant}
        if len(tenants) > MAX_RERATED_TENANTS:
            raise Conflict(f"At most {MAX_RERATED_TENANTS} tenants at a time: name one.", param="tenant")
        running.names = tenants
        found = [await self._of_tenant(running, TenantId(tenant)) for tenant in tenants]
        return ReRatingOut.of(None if wanted.dry_run else running.id, running.version, wanted, found)

    async def _of_tenant(self, running: _ReRating, tenant: TenantId) -> RatingOut:
        if running.wanted.dry_run:
            async with self._db.system_reader() as session:
                told, _, _ = await _difference(session, running, tenant)
            return told
        async with self._db.system_session() as session:
            await repository.lock(session)
            told, charges, buckets = await _difference(session, running, tenant)
            closed: set[date] = await repository.closed_months(session)
            await repository.add_charges(session, charges, closed, running.id)
            await repository.mark_unpriced(session, set(), buckets)
            details = {
                "rerating": str(running.id),
                "version": running.version,
                "start": running.wanted.start.isoformat(),
                "end": running.wanted.end.isoformat(),
                "difference": told.difference,
                "charges": told.charges,
            }
            record(session, running.actor, Change("usage.rerate", str(running.id), tenant, details))
        CHARGES.labels("rerating").inc(len(charges))
        return told


async def _difference(
    session: SystemRead, running: _ReRating, tenant: TenantId
) -> tuple[RatingOut, Sequence[Charge], set[Bucket]]:
    wanted = running.wanted
    buckets = set(await repository.buckets_between(session, tenant, wanted.start, wanted.end))
    before = await repository.charged(session, buckets)
    outcome = await _outcome(session, buckets, running.book, running.version)
    told = RatingOut.of(
        tenant, running.names[tenant], total(before), total(outcome.charges), len(outcome.charges)
    )
    return told, outcome.charges, buckets


async def _outcome(
    session: SystemRead, buckets: set[Bucket], book: Book, under: int | None = None
) -> Outcome:
    lines = await repository.lines_of(session, buckets)
    charged = await repository.charged(session, buckets)
    return await asyncio.to_thread(rate, lines, charged, book, under)


def _check_window(wanted: ReRatingIn) -> None:
    for param, moment in (("start", wanted.start), ("end", wanted.end)):
        if not 2000 <= moment.year <= 9000 or not is_bucket(moment):
            raise BadRequest(f"'{param}' must be a quarter of an hour.", param=param, code="invalid_value")
    if not timedelta(0) < wanted.end - wanted.start <= MAX_RERATED:
        raise BadRequest(
            f"'end' must follow 'start' by at most {MAX_RERATED.days} days.",
            param="end",
            code="invalid_value",
        )
