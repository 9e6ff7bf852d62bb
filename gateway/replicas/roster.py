"""Keeps a worker's replicas equal to the database's: registered ones come, drained and removed ones go,
within `ROSTER_S` and without a restart. While the database can't be read, everything stays as it was.

It also settles which weights may serve the base. The first that any replica tells are written down, once for
all workers; from then on a replica with others gets nothing until an operator admits them. Until they are
written down nobody gets anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from gateway.audit.service import SYSTEM, Change, record
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.models import PoolRule as RuleRow
from gateway.models import Replica as Row
from gateway.models import ReplicaSource, ReplicaState
from gateway.replicas import repository
from gateway.replicas.drivers.motet import MotetDriver
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica
from gateway.replicas.rules import PoolRule
from gateway.replicas.tokens import ReplicaTokens
from gateway.replicas.weights import Weights
from gateway.retirement import repository as purges

log = structlog.get_logger(__name__)

ROSTER_S: Final = 2.0
LISTED_NOTE: Final = timedelta(minutes=10)
"""So often it is written down that settings still list a replica; well within `UNLISTED_AFTER`."""
ANY: Final = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterNeeds:
    """`make_driver` takes a URL and tokens. `digests`: as in the settings. `listed`: URLs."""

    db: Database
    base_id: str
    listed: Sequence[str]
    digests: str
    tokens: ReplicaTokens
    make_driver: Callable[..., MotetDriver]


class Roster:
    """One per process. With `keep_removed`, replicas that were removed stay in `drivers`, for control reads
    their journals to the end."""

    def __init__(self, needs: RosterNeeds, registry: Registry, *, keep_removed: bool = False) -> None:
        self._needs = needs
        self._registry = registry
        self._keep_removed = keep_removed
        self._known: dict[str, Replica] = {}
        self._drivers: dict[str, MotetDriver] = {}
        self._removed: set[str] = set()
        for url in needs.listed:
            self._replica(url, needs.tokens.shared, vouched=True)
        registry.expect_weights(self._weights(None))
        registry.set_replicas(self._known.values())

    @property
    def drivers_by_url(self) -> dict[str, MotetDriver]:
        """Without those that were removed."""
        return {url: driver for url, driver in self._drivers.items() if url not in self._removed}

    @property
    def drivers(self) -> list[MotetDriver]:
        return list(self._drivers.values())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.refresh()
            except Unavailable as error:
                log.warning("roster_not_read", reason=error.message)
            await asyncio.sleep(ROSTER_S)

    async def refresh(self) -> None:
        """Raises `Unavailable`."""
        needs = self._needs
        async with needs.db.system_reader() as session:
            rows = await repository.all_of(session, needs.base_id)
            rules = await repository.rules_of(session, needs.base_id)
            digests = await repository.digests_of(session, needs.base_id)
            owing = await purges.owing(session)
        if set(needs.listed) - {row.url for row in rows}:
            async with needs.db.system_session() as session:
                await repository.add_listed(session, needs.base_id, needs.listed)
                rows = await repository.all_of(session, needs.base_id)
        await self._note_listed(rows)
        self._follow(rows, owing)
        self._registry.rules = tuple(as_rule(rule) for rule in rules)
        if digests is None and not needs.digests:
            digests = await self._pin()
        self._registry.expect_weights(self._weights(digests))

    async def _note_listed(self, rows: Sequence[Row]) -> None:
        """Of replicas that were drained or removed too: it would be forgotten with the row."""
        before, needs = datetime.now(UTC) - LISTED_NOTE, self._needs
        mine = [row for row in rows if row.source == ReplicaSource.LISTED and row.url in needs.listed]
        old = [row.url for row in mine if row.seen_at < before]
        if old:
            async with needs.db.system_session() as session:
                await repository.still_listed(session, needs.base_id, old)

    def _follow(self, rows: Sequence[Row], owing: Set[str]) -> None:
        wanted: dict[str, Replica] = {}
        drivers: dict[str, MotetDriver] = {}
        for row in rows:
            if row.source == ReplicaSource.LISTED and row.url not in self._needs.listed:
                continue
            if row.removed_at is not None and not self._keep_removed:
                continue
            tokens = self._needs.tokens.of(row)
            try:
                replica = self._replica(row.url, tokens, vouched=row.source == ReplicaSource.LISTED)
            except ValueError as error:  # of an earlier release: one bad row stops no gateway
                log.warning("replica_url_refused", url=row.url, reason=str(error))
                continue
            drivers[row.url] = self._drivers[row.url]
            if row.removed_at is None:
                replica.draining = row.state != ReplicaState.UP
                replica.owes = row.url in owing
                replica.pools = frozenset(row.pools)
                wanted[row.url] = replica
        self._removed = {row.url for row in rows if row.removed_at is not None}
        known = {row.url for row in rows}
        for url in self._needs.listed:  # the base is not in the database yet
            if url not in known:
                wanted[url], drivers[url] = self._known[url], self._drivers[url]
        self._known = {url: self._known[url] for url in drivers}
        self._drivers = drivers
        self._registry.set_replicas(wanted.values())

    def _replica(self, url: str, tokens: Sequence[str], *, vouched: bool) -> Replica:
        """The same object as long as it is known, with these tokens from now on."""
        found = self._known.get(url)
        if found is None:
            driver = self._drivers[url] = self._needs.make_driver(url, *tokens)
            found = self._known[url] = Replica(url, driver, vouched=vouched)
        self._drivers[url].set_tokens(tokens)
        return found

    def _weights(self, pinned: Sequence[str] | None) -> Weights:
        said = self._needs.digests
        if said.strip() == ANY:
            return Weights(self._needs.base_id, None)
        named = [each.strip() for each in said.split(",") if each.strip()] if said else pinned or []
        return Weights(self._needs.base_id, frozenset(named))

    async def _pin(self) -> list[str] | None:
        """What is written down of the weights, by us if we are the first to have seen some."""
        needs = self._needs
        seen = [
            replica.view.base_digest
            for replica in self._registry.all
            if replica.healthy and replica.view.base_id == needs.base_id and replica.view.base_digest
        ]
        if not seen:
            return None
        async with needs.db.system_session() as session:
            if await repository.pin_digest(session, needs.base_id, seen[0]):
                record(session, SYSTEM, Change("weights.pin", needs.base_id, details={"digests": seen[:1]}))
                log.info("weights_pinned", base_id=needs.base_id, base_digest=seen[0])
            return await repository.digests_of(session, needs.base_id)


def as_rule(row: RuleRow) -> PoolRule:
    return PoolRule(
        pool=row.pool,
        fallback=row.fallback,
        min_prompt_tokens=row.min_prompt_tokens,
        min_answer_tokens=row.min_answer_tokens,
        service_class=row.service_class,
        tenant=row.tenant,
        adapter=row.adapter,
    )
