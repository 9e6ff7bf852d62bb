"""What came into the database since the last look. Ids are made before their transactions commit, so each
look reaches back over the one before, and what was seen already is passed over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from gateway.changes import repository
from gateway.changes.kinds import TOLD, of_action
from gateway.changes.repository import MOST, Entry, Told
from gateway.changes.schemas import Change
from gateway.db import Database
from gateway.webhooks.kinds import EventKind

REACH_BACK: Final = timedelta(seconds=30)
"""As long as a transaction may idle, and clocks of machines may differ."""


class LogTail:
    """Belongs to one feed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._since: datetime | None = None
        self._seen: dict[UUID, None] = {}

    def forget(self) -> None:
        """The next look begins anew."""
        self._since = None
        self._seen.clear()

    async def look(self) -> tuple[list[Change], bool]:
        """What is new, in order, and whether that is all. Raises `Unavailable`."""
        began = datetime.now(UTC)
        after = first_id_of((self._since or began) - REACH_BACK)
        async with self._db.system_reader() as session:
            entries = await repository.entries(session, after)
            told = await repository.told(session, after)
        complete = len(entries) <= MOST and len(told) <= MOST
        everything: list[Entry | Told] = [*entries, *told]
        fresh = [each for each in everything if each.id not in self._seen]
        self._since = began
        self._seen = dict.fromkeys(each.id for each in everything)
        found = [change for each in fresh if (change := _change_of(each)) is not None]
        return sorted(found, key=lambda change: change.id), complete


def first_id_of(moment: datetime) -> UUID:
    """The least UUIDv7 of a millisecond."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def _change_of(each: Entry | Told) -> Change | None:
    if isinstance(each, Entry):
        found = of_action(each.action, each.target)
        if found is None:
            return None
        kind, objects = found
    else:
        kind, field = TOLD[EventKind(each.kind)]
        objects = [] if field is None else [str(each.data[field])]
    return Change(id=each.id, kind=kind, tenant=each.tenant, objects=objects, at=each.at)
