"""What requests cost, and what was spent: the side of a money budget that lies in the price book and the
charges."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from gateway.billing.months import bucket_of
from gateway.billing.price_book import repository as price_book
from gateway.billing.price_book.prices import Book, Edition, PriceRow, Selector
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.limits import repository
from gateway.limits.amounts import Tokens, Used
from gateway.limits.levels import Counter

log = structlog.get_logger(__name__)

REFRESH_S: Final = 5.0
"""A version of the price book is known to a worker so long after it was made."""


class Spending(Protocol):
    """What the limiter asks."""

    def price_of(self, selector: Selector) -> PriceRow | None:
        """None: no version of the price book is in force, or none could be read yet."""
        ...

    async def spent(self, counter: Counter) -> int:
        """Units charged in the counter's period so far. Raises `Unavailable`."""
        ...


def worst_price(row: PriceRow, tokens: Tokens) -> int:
    """Of the most that a request may use, in units."""
    price, cached, output = row.of_source("engine")
    return tokens.input * max(price, cached) + tokens.output * output


def real_price(row: PriceRow, used: Used) -> int:
    """As it will be charged, in units."""
    price, cached, output = row.of_source(used.source)
    return (used.input - used.cached) * price + used.cached * cached + used.output * output


@dataclass(slots=True)
class _Now:
    """The version in force in a quarter of an hour."""

    bucket: datetime
    edition: Edition | None


class ChargedSpending:
    """One per worker."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._book: Book | None = None
        self._now: _Now | None = None

    async def run(self) -> None:
        """Keeps the price book, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_S)

    async def refresh(self) -> None:
        """Never raises: the versions that were read before hold."""
        try:
            async with self._db.system_reader() as session:
                self._book = await price_book.read_book(session, self._book)
        except Unavailable as error:
            log.warning("price_book_not_read", reason=error.message)
        self._now = None

    def price_of(self, selector: Selector) -> PriceRow | None:
        if self._book is None:
            return None
        bucket = bucket_of(datetime.now(UTC))
        if self._now is None or self._now.bucket != bucket:
            self._now = _Now(bucket, self._book.in_force_at(bucket))
        return None if self._now.edition is None else self._now.edition.price_of(selector)

    async def spent(self, counter: Counter) -> int:
        async with self._db.tenant_reader(counter.tenant) as session:
            return await repository.charged(session, counter)
