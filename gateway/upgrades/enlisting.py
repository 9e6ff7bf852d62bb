"""Control's part in upgrades: on whatever weights replicas serve, all ready versions get a proof."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from gateway.db import Database
from gateway.proofs import repository as proofs
from gateway.upgrades import repository

MOST_WAITING: Final = 500
"""Tasks of upgrades that wait at a time, so that uploads' are found quickly among them."""


class Enlisting:
    """Belongs to the leader. `served`: digests of the weights that its replicas serve with now."""

    def __init__(
        self, database: Database, base_id: str, served: Callable[[], Awaitable[frozenset[str]]]
    ) -> None:
        self._database = database
        self._base_id = base_id
        self._served = served

    async def run_once(self) -> int:
        """Gives how many proofs it asked for. Raises `Unavailable`."""
        async with self._database.system_reader() as session:
            room = MOST_WAITING - await proofs.waiting(session)
        asked = 0
        for digest in sorted(await self._served()):
            if room - asked <= 0:
                break
            async with self._database.system_session() as session:
                asked += await repository.enlist(session, self._base_id, digest, room - asked)
        return asked
