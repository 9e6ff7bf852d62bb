"""Control's part in what is remembered of requests: room for the days to come, an end to the old."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.config import Settings
from gateway.db import Database
from gateway.events import repository as events
from gateway.traffic import repository as traffic
from gateway.traffic.minute import HOUR_S, MINUTE_S, QUARTER_S

DAYS_AHEAD: Final = 2
COARSENING_S: Final = 120.0
"""What one round may take; the rest is done in the next."""


class Memory:
    """Each job may be repeated at any point."""

    def __init__(self, settings: Settings, db: Database) -> None:
        self._settings = settings
        self._db = db

    async def keep_events(self) -> int:
        """Partitions made and dropped."""
        async with self._db.system_session() as session:
            return await events.keep(session, ahead=DAYS_AHEAD, kept=self._settings.request_events_days)

    async def coarsen(self) -> int:
        """Rows of quarters and hours made, and rows removed."""
        now, settings = datetime.now(UTC), self._settings
        done = 0
        for finer_s, span_s, kept in (
            (MINUTE_S, QUARTER_S, timedelta(hours=settings.request_minutes_h)),
            (QUARTER_S, HOUR_S, timedelta(days=settings.request_quarters_days)),
        ):
            done += await self._coarsen(finer_s, span_s, now - kept)
        async with self._db.system_session() as session:
            return done + await traffic.forget(session, now - timedelta(days=settings.request_metrics_days))

    async def _coarsen(self, finer_s: int, span_s: int, before: datetime) -> int:
        done, until = 0, time.monotonic() + COARSENING_S
        while time.monotonic() < until:
            async with self._db.system_session() as session:
                made = await traffic.coarsen(session, finer_s=finer_s, span_s=span_s, before=before)
            if not made:
                break
            done += made
        return done
