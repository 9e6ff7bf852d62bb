"""Which version of the price book holds at a moment, known without asking the database then.

A version can't begin earlier than `LEAD_S` after it was made, unless it is said to be retroactive. So who
read the list of versions at one moment knows what holds in every quarter of an hour that begins up to
`LEAD_S` later: not by luck, but because nothing else may begin there. `SPARED_S` of that is left to clocks
that differ and to the time that a version takes from its last check to its commit. A list too old to say
gives None, which is what is then written down: never a guess.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from gateway.billing.months import bucket_of
from gateway.billing.price_book import repository
from gateway.db import Database
from gateway.errors import Unavailable

log = structlog.get_logger(__name__)

LEAD_S: Final = 60.0
SPARED_S: Final = 20.0
READ_S: Final = 15.0
_KNOWN_FOR: Final = timedelta(seconds=LEAD_S - SPARED_S)

Beginning = tuple[datetime, int]
"""When a version begins to hold, and its number."""


class PricesInForce:
    """One per worker."""

    def __init__(self) -> None:
        self._begins: list[datetime] = []
        self._versions: list[int] = []
        self._known_to: datetime | None = None

    def version_at(self, moment: datetime) -> int | None:
        """None when none holds, or the list is too old to say."""
        bucket = bucket_of(moment)
        if self._known_to is None or bucket > self._known_to:
            return None
        place = bisect_right(self._begins, bucket)
        return self._versions[place - 1] if place else None

    def learn(self, versions: list[Beginning], read_at: datetime) -> None:
        """All versions, as they were when reading them began."""
        ordered = sorted(versions)  # of two that begin at once, the later made holds
        self._begins = [begins for begins, _ in ordered]
        self._versions = [version for _, version in ordered]
        self._known_to = read_at + _KNOWN_FOR

    async def read(self, db: Database) -> None:
        """Raises `Unavailable`."""
        read_at = datetime.now(UTC)
        async with db.system_reader() as session:
            self.learn(await repository.beginnings(session), read_at)

    async def run(self, db: Database) -> None:
        """Reads again and again until cancelled; a database that is away makes the list old, and no more."""
        while True:
            try:
                await self.read(db)
            except Unavailable as error:
                log.warning("price_book_unread", reason=error.message)
            await asyncio.sleep(READ_S)
