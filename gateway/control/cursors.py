"""How far each engine journal was settled, kept in the database."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from gateway.db import Database
from gateway.models import JournalCursor


class Cursors:
    """Moves forward only. Remembers what it wrote, so that an idle round writes nothing."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._written: dict[str, int] = {}

    async def position(self, journal_id: str) -> int:
        async with self._db.system_reader() as session:
            query = select(JournalCursor.n).where(JournalCursor.journal_id == journal_id)
            return int(await session.scalar(query) or 0)

    async def move(self, journal_id: str, n: int) -> None:
        if self._written.get(journal_id) == n:
            return
        new = insert(JournalCursor).values(journal_id=journal_id, n=n)
        async with self._db.system_session() as session:
            await session.execute(
                new.on_conflict_do_update(
                    index_elements=[JournalCursor.journal_id],
                    set_={
                        "n": func.greatest(JournalCursor.n, new.excluded.n),
                        "updated_at": func.now(),
                    },
                )
            )
        self._written = {**self._written, journal_id: n} if len(self._written) < 1_000 else {journal_id: n}
