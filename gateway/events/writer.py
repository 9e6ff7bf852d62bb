"""Brings what the recorder holds into PostgreSQL, every second, off the way of all requests."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog
from sqlalchemy.exc import DBAPIError

from gateway.db import Database
from gateway.errors import Unavailable
from gateway.events import repository
from gateway.events.event import RequestEvent
from gateway.events.metrics import FAILED, TALLIES_LOST, WAITING, WRITTEN
from gateway.events.recorder import Recorder
from gateway.traffic import repository as traffic

log = structlog.get_logger(__name__)

EVERY_S: Final = 1.0
BATCH: Final = 500
"""Rows of one statement; with `EVERY_S` also what a worker writes in a second."""
TALLY_EVERY: Final = 5
"""Rounds between two writings of the figures."""
TALLY_BATCH: Final = 100
"""Few, for they are made on the event loop."""
LONGEST_PAUSE_S: Final = 30.0
"""While the database is away, it is asked ever less often."""


class Writer:
    """One per worker."""

    def __init__(self, db: Database, recorder: Recorder) -> None:
        self._db = db
        self._recorder = recorder

    async def run(self) -> None:
        """Until cancelled."""
        pause_s, rounds = EVERY_S, 0
        while True:
            await asyncio.sleep(pause_s)
            rounds += 1
            try:
                await self.write_events()
                if rounds % TALLY_EVERY == 0:
                    await self.write_tally()
                    self._give_up_old()
                pause_s = EVERY_S
            except Unavailable:  # said where it was raised
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                self._give_up_old()
            finally:
                WAITING.set(len(self._recorder.ring))

    async def close(self) -> None:
        """All that is left, if PostgreSQL is there."""
        try:
            while self._recorder.ring:
                await self.write_events()
            await self.write_tally()
        except Unavailable as error:
            log.warning("request_events_lost", num_events=len(self._recorder.ring), reason=str(error))

    async def write_events(self) -> None:
        """Up to `BATCH` of them, oldest first. Raises `Unavailable`, and keeps them then."""
        ring = self._recorder.ring
        batch = [ring.popleft() for _ in range(min(BATCH, len(ring)))]
        if not batch:
            return
        try:
            await self._write(batch)
        except BaseException:
            self._recorder.put_back(batch)
            raise

    async def _write(self, batch: list[RequestEvent]) -> None:
        """One that PostgreSQL does not take is lost alone: those beside it are of other tenants."""
        try:
            async with self._db.system_session() as session:
                await repository.add(session, batch)
        except DBAPIError:  # it will not take it the next time either
            if len(batch) == 1:
                FAILED.inc()
                log.exception("request_event_refused")
                return
            half = len(batch) // 2
            await self._write(batch[:half])
            await self._write(batch[half:])
        else:
            WRITTEN.inc(len(batch))

    async def write_tally(self) -> None:
        """All cells that changed. Raises `Unavailable`."""
        tally = self._recorder.tally
        while True:
            keys, rows = tally.changed(TALLY_BATCH)
            if not rows:
                return
            try:
                async with self._db.system_session() as session:
                    await traffic.put(session, rows)
            except DBAPIError:
                TALLIES_LOST.inc(len(rows))
                log.exception("request_minutes_refused", num_rows=len(rows))
            except BaseException:
                tally.not_written(keys)
                raise

    def _give_up_old(self) -> None:
        tally = self._recorder.tally
        given_up = tally.forget(time.time()) + tally.lost
        tally.lost = 0
        if given_up:
            TALLIES_LOST.inc(given_up)
            log.warning("request_minutes_lost", num_lost=given_up)
