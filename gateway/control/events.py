"""Control's part in what is remembered of requests: room for the days to come, an end to the old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.config import Settings
from gateway.db import Database
from gateway.events import repository as events
from gateway.traffic import repository as traffic

DAYS_AHEAD: Final = 2


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
        """Rows of hours made and rows removed."""
        now, settings = datetime.now(UTC), self._settings
        async with self._db.system_session() as session:
            made = await traffic.coarsen(session, now - timedelta(days=settings.request_minutes_days))
        async with self._db.system_session() as session:
            return made + await traffic.forget(session, now - timedelta(days=settings.request_metrics_days))
