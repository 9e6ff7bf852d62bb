"""The ledger against the engines' own journals, line by line.

A line whose row is there is compared. One whose row is missing after `GRACE_S` belonged to a worker that died
(or lost its disk), unless a worker that lives may still bring it in, with all that it knows: one that has not
told yet that it drained what ended before, or one whose client reads so slowly that the request is open yet.
Then it is waited for. Else the line is added from the engine's count. What it bills:

    purpose is not `tenant`                                  nothing
    outcome is not finished or aborted                       nothing
    another attempt of the request is billed, or came later  nothing
    a worker wrote that it had lost the replica              if the client had left
    else                                                     the engine's real count

A journal's cursor moves past a line only when its row is there, so that a restart loses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

import msgspec
import structlog

from gateway.control.cursors import Cursors
from gateway.control.metrics import UNSETTLED, UNSETTLED_AGE
from gateway.db import Database, SystemWrite
from gateway.errors import Unavailable
from gateway.ids import time_of
from gateway.models import UsageLedger, UsageUncounted
from gateway.moments import LATEST, is_storable
from gateway.principal import TenantId
from gateway.replicas.driver import JournalLine, JournalPage, UpstreamFailed
from gateway.usage import repository
from gateway.usage.drain import journalled
from gateway.usage.event import BILLED_OUTCOMES, COLUMNS, UsageEvent
from gateway.usage.metrics import LEDGER_ROWS, RECONCILE
from gateway.usage.watermark import tell_engine, workers_complete_until

log = structlog.get_logger(__name__)

GRACE_S = 15.0
"""A live worker needs about a second to bring its rows in, and to say so once it has begun."""

CLOCKS_APART = timedelta(seconds=5)
"""Most that the clocks of a replica and of this machine may differ for "complete until" to be true."""

MAX_VERSION_DIGITS = 10
UUID_VERSION = 7
LAST_MS = int(LATEST.timestamp() * 1000)
PAGE_LINES = 1_000
MAX_PENDING = 20_000
"""Lines that wait, per journal; beyond it no more are read until some are settled."""

Attempt = tuple[UUID, int]
OpenRequests = Callable[[Sequence[tuple[TenantId, UUID]]], Awaitable[set[UUID]]]
"""Those of these requests that a live worker holds. Raises `Unavailable`."""


@dataclass(slots=True)
class _Pending:
    line: JournalLine
    request: UUID
    seen_at: float  # without a live worker that holds it

    @property
    def attempt(self) -> Attempt:
        return self.request, self.line.attempt


class Journalled(Protocol):
    """What is needed of a replica here: a `Driver` is one."""

    async def journal(self, after: int, limit: int) -> JournalPage:
        """Raises `UpstreamFailed`."""


@dataclass(slots=True)
class _Source:
    """One replica's journal as far as it was read."""

    driver: Journalled
    journal_id: str = ""
    read_to: int = 0
    read_at: datetime | None = None  # when the journal last had nothing more for us
    pending: dict[int, _Pending] = field(default_factory=dict)

    @property
    def settled_to(self) -> int:
        return min(self.pending) - 1 if self.pending else self.read_to

    @property
    def complete_until(self) -> datetime | None:
        """All that ended before it has its row; None before the first reading."""
        waiting = [_moment(pending.line.ended_at) for pending in self.pending.values()]
        return None if self.read_at is None else min([self.read_at, *waiting])


class Reconciler:
    """Held by the leader; its memory is only what the cursors have not passed yet."""

    def __init__(
        self,
        db: Database,
        drivers: Iterable[Journalled],
        *,
        base_id: str,
        journal_dir: Path,
        open_requests: OpenRequests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._sources = [_Source(driver) for driver in drivers]
        self._ended: list[_Source] = []  # journals that will not be read again, and have lines that wait
        self._base_id = base_id
        self._journal_dir = journal_dir
        self._open_requests = open_requests
        self._clock = clock
        self._cursors = Cursors(db)

    def read_from(self, drivers: Iterable[Journalled]) -> None:
        """From now on the journals of these; of one that stays, reading goes on where it was."""
        known = {source.driver: source for source in self._sources}
        self._sources = [known.get(driver) or _Source(driver) for driver in drivers]

    @property
    def _all(self) -> list[_Source]:
        return [*self._sources, *self._ended]

    async def run_once(self) -> int:
        """Reads what is new, settles what can be; gives the number of rows added. Raises `Unavailable`."""
        await asyncio.gather(*(self._read_if_possible(source) for source in self._sources))
        added = await self._settle()
        for source in self._all:
            if source.journal_id:
                await self._cursors.move(source.journal_id, source.settled_to)
        self._ended = [source for source in self._ended if source.pending]
        await self._tell_complete()
        self._measure()
        return added

    async def _read_if_possible(self, source: _Source) -> None:
        try:
            await self._read(source)
        except UpstreamFailed as error:
            log.info("engine_journal_unread", reason=str(error))

    async def _read(self, source: _Source) -> None:
        while len(source.pending) < MAX_PENDING:
            asked_at = datetime.now(UTC) - CLOCKS_APART
            page = await source.driver.journal(source.read_to, PAGE_LINES)
            if page.journal_id != source.journal_id:  # first contact, or the engine began a new one
                if source.pending:  # of which nobody else tells any more
                    self._ended.append(replace(source))
                source.journal_id, source.pending = page.journal_id, {}
                source.read_to = await self._cursors.position(page.journal_id)
                continue
            if not page.lines:
                source.read_at = asked_at
                return
            for line in page.lines:
                self._take(source, line)
            source.read_to = page.lines[-1].n

    def _take(self, source: _Source, line: JournalLine) -> None:
        request = _request(line.request)
        if request is None or _uuid(line.tenant) is None:
            RECONCILE.labels("foreign").inc()  # someone asked the replica directly: nobody's usage
            return
        source.pending[line.n] = _Pending(line, request, self._clock())

    async def _settle(self) -> int:
        waiting = [pending for source in self._all for pending in source.pending.values()]
        added = 0
        for start in range(0, len(waiting), PAGE_LINES):
            added += await self._settle_some(waiting[start : start + PAGE_LINES], waiting)
        return added

    async def _settle_some(self, some: Sequence[_Pending], all_waiting: Sequence[_Pending]) -> int:
        await self._wait_for_open(some)
        async with self._db.system_session() as session:
            await repository.decide_alone(session)
            facts = await _facts(session, some, all_waiting)
            settled = {p.attempt for p in some if facts.compare(p.line, p.request)}
            told_to = await workers_complete_until(session)
            missing = [p for p in some if p.attempt not in settled and self._is_due(p, facts, told_to)]
            if missing:
                written = await journalled(self._journal_dir)  # a live worker brings these in itself
                missing = [p for p in missing if p.attempt not in written]
            events = [facts.event(p.line, p.request, self._base_id) for p in missing]
            added = await repository.insert_events(session, events)
            await repository.forget_uncounted(session, [p.attempt for p in missing])
        settled |= {p.attempt for p in missing}
        for source in self._all:
            source.pending = {n: p for n, p in source.pending.items() if p.attempt not in settled}
        self._report(missing, events, added)
        return added

    async def _tell_complete(self) -> None:
        async with self._db.system_session() as session:
            for source in self._all:
                if (until := source.complete_until) is not None:
                    await tell_engine(session, source.journal_id, until)

    def _measure(self) -> None:
        seen = [pending.seen_at for source in self._all for pending in source.pending.values()]
        UNSETTLED.set(len(seen))
        UNSETTLED_AGE.set(self._clock() - min(seen) if seen else 0.0)

    def _is_due(self, pending: _Pending, facts: _Facts, told_to: datetime | None) -> bool:
        """`told_to`: what ended before, by our clock, no live worker has left to bring in."""
        if pending.attempt in facts.uncounted:
            return True
        if self._clock() - pending.seen_at < GRACE_S:
            return False
        return told_to is None or _moment(pending.line.ended_at) + CLOCKS_APART < told_to

    async def _wait_for_open(self, some: Sequence[_Pending]) -> None:
        """The grace of requests that are open yet begins anew. While nobody can say which are, of all."""
        waited = [p for p in some if self._clock() - p.seen_at >= GRACE_S]
        if not waited:
            return
        try:
            held = await self._open_requests([(_tenant(p.line), p.request) for p in waited])
        except Unavailable as error:
            log.warning("open_requests_unread", reason=error.message)
            held = {p.request for p in waited}
        for pending in waited:
            if pending.request in held:
                pending.seen_at = self._clock()

    def _report(self, missing: Sequence[_Pending], events: Sequence[UsageEvent], added: int) -> None:
        LEDGER_ROWS.labels("reconciler").inc(added)
        for event in events:
            billed = event.billed_prompt_tokens + event.billed_completion_tokens > 0
            RECONCILE.labels("added" if billed else "unbilled").inc()
        if missing:
            log.warning("ledger_rows_added", num_rows=added, num_lines=len(missing))


@dataclass(slots=True)
class _Facts:
    """What is known of some requests: their rows, the rows that wait for a count, and all lines that wait."""

    rows: dict[Attempt, UsageLedger]
    uncounted: dict[Attempt, UsageUncounted]
    billed: set[UUID]
    latest: dict[UUID, int]  # highest attempt anybody knows of

    def compare(self, line: JournalLine, request: UUID) -> bool:
        """Whether the line has its row; says so when their counts differ."""
        row = self.rows.get((request, line.attempt))
        if row is None:
            return False
        same = (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (
            line.prompt,
            line.completion,
            line.cached,
        )
        RECONCILE.labels("equal" if same else "mismatch").inc()
        if not same:
            log.error(
                "ledger_mismatch",
                request=line.request,
                attempt=line.attempt,
                ledger_tokens=[row.prompt_tokens, row.completion_tokens, row.cached_tokens],
                engine_tokens=[line.prompt, line.completion, line.cached],
            )
        return True

    def event(self, line: JournalLine, request: UUID, base_id: str) -> UsageEvent:
        waiting = self.uncounted.get((request, line.attempt))
        outcome = waiting.outcome if waiting is not None else line.outcome
        billed = self._bills(line, request, outcome)
        if billed:
            self.billed.add(request)
        event = _waiting_event(waiting) if waiting is not None else _line_event(line, request, base_id)
        return msgspec.structs.replace(
            event,
            outcome=outcome,
            prompt_tokens=line.prompt,
            completion_tokens=line.completion,
            cached_tokens=line.cached,
            billed_prompt_tokens=line.prompt if billed else 0,
            billed_completion_tokens=line.completion if billed else 0,
            billed_cached_tokens=line.cached if billed else 0,
            queue_ms=_whole(line.queue_ms),
            load_ms=_whole(line.load_ms),
            ttft_ms=_whole(line.ttft_ms),
            total_ms=_whole(line.total_ms),
            tier=line.tier or None,
            counted=True,
        )

    def _bills(self, line: JournalLine, request: UUID, outcome: str) -> bool:
        return (
            line.purpose == "tenant"
            and outcome in BILLED_OUTCOMES
            and request not in self.billed
            and line.attempt == self.latest[request]
        )


async def _facts(session: SystemWrite, some: Sequence[_Pending], all_waiting: Sequence[_Pending]) -> _Facts:
    requests = list({pending.request for pending in some})
    rows = await repository.attempts_of(session, requests)
    uncounted = await repository.uncounted_of(session, requests)
    latest: dict[UUID, int] = defaultdict(int)
    known = [(row.request_id, row.attempt) for row in rows]
    known += [(row.request_id, row.attempt) for row in uncounted]
    known += [pending.attempt for pending in all_waiting]
    for request, attempt in known:
        latest[request] = max(latest[request], attempt)
    return _Facts(
        rows={(row.request_id, row.attempt): row for row in rows},
        uncounted={(row.request_id, row.attempt): row for row in uncounted},
        billed={row.request_id for row in rows if row.billed_prompt_tokens or row.billed_completion_tokens},
        latest=latest,
    )


def _waiting_event(row: UsageUncounted) -> UsageEvent:
    return UsageEvent(**{name: getattr(row, name) for name in COLUMNS})


def _line_event(line: JournalLine, request: UUID, base_id: str) -> UsageEvent:
    name, _, version = line.version.partition("@")
    return UsageEvent(
        request_id=request,
        attempt=line.attempt,
        tenant_id=_tenant(line),
        key_id=line.key,
        base_id=base_id,
        outcome=line.outcome,
        created_at=time_of(request),
        ended_at=_moment(line.ended_at),
        purpose=line.purpose,
        adapter_name=name or None,
        adapter_version=int(version) if version.isdigit() and len(version) <= MAX_VERSION_DIGITS else None,
        artefact=line.artefact,
        owner_id=_uuid(line.owner or ""),
        service_class=line.service_class,
    )


def _tenant(line: JournalLine) -> TenantId:
    tenant = _uuid(line.tenant)
    assert tenant is not None  # `_take` turned others away
    return TenantId(tenant)


def _request(text: str) -> UUID | None:
    """None for an id that no gateway made: it has to hold its time, by which the ledger is divided."""
    request = _uuid(text)
    if request is None or request.version != UUID_VERSION:
        return None
    return request if request.int >> 80 < LAST_MS else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _moment(text: str) -> datetime:
    """Now for what is none, or none that a request can have ended at."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment if is_storable(moment) else datetime.now(UTC)


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds)
