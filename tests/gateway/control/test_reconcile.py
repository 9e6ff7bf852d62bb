"""The ledger against engine journals: nothing missing, nothing billed twice, whatever died in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import delete, select, text

from gateway.control.cursors import Cursors
from gateway.control.leader import LOCK, leadership
from gateway.control.process import ensure_partitions
from gateway.control.reconcile import GRACE_S, Reconciler
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import UsageDrain, UsageLedger, UsageUncounted
from gateway.principal import TenantId
from gateway.replicas.driver import JournalLine, JournalPage, UpstreamFailed
from gateway.usage.drain import drain_own
from gateway.usage.journal import Journal
from gateway.usage.repository import insert_events, uncounted_of
from tests.gateway.usage.test_journal import make_event


class JournalOnly:
    """A replica of which only the journal is read."""

    def __init__(self) -> None:
        self.journal_id = f"journal-{uuid4()}"
        self.lines: list[JournalLine] = []
        self.away = False

    def add(self, tenant: UUID, request: UUID, attempt: int = 1, **more: Any) -> JournalLine:
        facts: dict[str, Any] = {
            "n": len(self.lines) + 1,
            "request": str(request),
            "attempt": attempt,
            "tenant": str(tenant),
            "key": "k1",
            "outcome": "finished",
            "prompt": 10,
            "completion": 20,
            "cached": 0,
            "ended_at": "2026-01-01T00:00:00Z",
            "version": "pirate@3",
            "artefact": "a" * 64,
            "owner": str(tenant),
        }
        line = msgspec.convert(facts | more, JournalLine)
        self.lines.append(line)
        return line

    async def journal(self, after: int, limit: int) -> JournalPage:
        if self.away:
            raise UpstreamFailed("away")
        lines = [line for line in self.lines if line.n > after][:limit]
        return JournalPage(self.journal_id, lines, lines[-1].n if lines else after)


class Bench:
    """A reconciler over two replicas, with a clock of its own."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder
        self.now = 0.0
        self.open: set[UUID] = set()  # requests that live workers hold
        self.replicas = [JournalOnly(), JournalOnly()]
        self.reconciler = self.restarted()

    def restarted(self) -> Reconciler:
        self.reconciler = Reconciler(
            self.db,
            self.replicas,
            base_id="base",
            journal_dir=self.folder,
            open_requests=self.held,
            clock=lambda: self.now,
        )
        return self.reconciler

    async def held(self, requests: Sequence[tuple[TenantId, UUID]]) -> set[UUID]:
        return self.open & {request for _, request in requests}

    async def after_grace(self) -> int:
        first = await self.reconciler.run_once()
        self.now += GRACE_S + 1
        return first + await self.reconciler.run_once()

    async def rows(self, request: UUID) -> dict[int, tuple[str, int, int]]:
        """attempt → (outcome, completion, billed completion)"""
        async with self.db.system_reader() as session:
            rows = await session.scalars(select(UsageLedger).where(UsageLedger.request_id == request))
            return {r.attempt: (r.outcome, r.completion_tokens, r.billed_completion_tokens) for r in rows}


@pytest.fixture
async def bench(db: Database, tmp_path: Path) -> Bench:
    async with db.system_session() as session:  # gateways of other tests are no workers of this one
        await session.execute(delete(UsageDrain).where(UsageDrain.kind == "worker"))
    return Bench(db, tmp_path)


async def test_a_dead_workers_requests_are_added_at_the_engines_count(bench: Bench, tenant: TenantId) -> None:
    finished, cut = uuid7(), uuid7()
    bench.replicas[0].add(tenant, finished)
    bench.replicas[0].add(tenant, cut, outcome="aborted", completion=7)
    assert await bench.reconciler.run_once() == 0  # a live worker may still bring them in
    assert await bench.after_grace() == 2
    assert await bench.rows(finished) == {1: ("finished", 20, 20)}
    assert await bench.rows(cut) == {1: ("aborted", 7, 7)}
    async with bench.db.system_reader() as session:
        row = (await session.scalars(select(UsageLedger).where(UsageLedger.request_id == cut))).one()
        assert (row.adapter_name, row.adapter_version, row.tenant_id, row.owner_id) == (
            "pirate",
            3,
            tenant,
            tenant,
        )


async def test_what_is_there_is_compared_and_left_alone(
    bench: Bench, tenant: TenantId, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    event = make_event(tenant_id=tenant, completion_tokens=20, billed_completion_tokens=20, prompt_tokens=10)
    await journal.append(event)
    await drain_own(bench.db, journal)
    await journal.close()
    bench.replicas[0].add(tenant, event.request_id)
    assert await bench.after_grace() == 0
    assert await bench.rows(event.request_id) == {1: ("finished", 20, 20)}


async def test_a_live_workers_journal_is_waited_for(bench: Bench, tenant: TenantId) -> None:
    journal = Journal(bench.folder)
    event = make_event(
        tenant_id=tenant,
        outcome="failed",
        completion_tokens=20,
        billed_completion_tokens=0,
        billed_prompt_tokens=0,
    )
    await journal.append(event)  # on disk, and its worker can't reach the database
    bench.replicas[0].add(tenant, event.request_id, outcome="aborted")
    assert await bench.after_grace() == 0
    await drain_own(bench.db, journal)
    assert await bench.reconciler.run_once() == 0
    assert await bench.rows(event.request_id) == {1: ("failed", 20, 0)}
    await journal.close()


async def test_a_live_worker_on_another_disk_brings_its_rows_in_itself(
    bench: Bench, tenant: TenantId, tmp_path: Path
) -> None:
    """It could not reach the database for a while; its rows know more than the engine does."""
    ended = datetime.now(UTC) - timedelta(minutes=1)
    request = uuid7()
    bench.replicas[0].add(tenant, request, ended_at=ended.isoformat(), service_class="batch")
    far = UsageDrain(
        source=f"far-{uuid4()}",
        kind="worker",
        folder="elsewhere",
        complete_until=ended - timedelta(seconds=1),
    )
    async with bench.db.system_session() as session:
        session.add(far)
    assert await bench.after_grace() == 0
    async with bench.db.system_session() as session:
        await session.execute(delete(UsageDrain).where(UsageDrain.source == far.source))
    assert await bench.reconciler.run_once() == 1  # it died, and its disk has been looked at
    async with bench.db.system_reader() as session:
        row = (await session.scalars(select(UsageLedger).where(UsageLedger.request_id == request))).one()
    assert row.service_class == "batch"  # as the engine was told: its price depends on it


async def test_a_request_whose_client_reads_slowly_is_waited_for(bench: Bench, tenant: TenantId) -> None:
    request = uuid7()
    bench.replicas[0].add(tenant, request)
    bench.open = {request}
    for _ in range(4):
        assert await bench.after_grace() == 0
    bench.open = set()
    assert await bench.reconciler.run_once() == 0  # its row is on its way now
    assert await bench.after_grace() == 1


async def test_a_count_that_comes_after_the_row_waits_for_nothing(
    bench: Bench, tenant: TenantId, tmp_path: Path
) -> None:
    event = make_event(tenant_id=tenant, counted=False)
    bench.replicas[0].add(tenant, event.request_id)
    assert await bench.after_grace() == 1
    async with bench.db.system_session() as session:
        assert await insert_events(session, [event]) == 0
        assert await uncounted_of(session, [event.request_id]) == []


async def test_a_retried_request_is_billed_once_on_its_last_attempt(bench: Bench, tenant: TenantId) -> None:
    request = uuid7()
    bench.replicas[0].add(tenant, request, 1, outcome="aborted", completion=3)
    bench.replicas[1].add(tenant, request, 2)
    assert await bench.after_grace() == 2
    assert await bench.rows(request) == {1: ("aborted", 3, 0), 2: ("finished", 20, 20)}


async def test_a_request_that_is_billed_already_is_not_billed_again(
    bench: Bench, tenant: TenantId, tmp_path: Path
) -> None:
    """Whatever an engine tells of it later: at most one attempt of a request bills."""
    journal = Journal(tmp_path)
    event = make_event(tenant_id=tenant, prompt_tokens=10, completion_tokens=20, billed_completion_tokens=20)
    await journal.append(event)
    await drain_own(bench.db, journal)
    await journal.close()
    bench.replicas[0].add(tenant, event.request_id)
    bench.replicas[1].add(tenant, event.request_id, 2)
    bench.replicas[1].add(tenant, event.request_id, 3, outcome="aborted")
    assert await bench.after_grace() == 2
    assert await bench.rows(event.request_id) == {
        1: ("finished", 20, 20),
        2: ("finished", 20, 0),
        3: ("aborted", 20, 0),
    }


async def test_probes_and_failures_bill_nothing(bench: Bench, tenant: TenantId) -> None:
    probe, failed = uuid7(), uuid7()
    bench.replicas[0].add(tenant, probe, purpose="probe")
    bench.replicas[0].add(tenant, failed, outcome="adapter_failed", completion=0)
    assert await bench.after_grace() == 2
    assert await bench.rows(probe) == {1: ("finished", 20, 0)}
    assert await bench.rows(failed) == {1: ("adapter_failed", 0, 0)}


@pytest.mark.parametrize(("outcome", "billed"), [("failed", 0), ("aborted", 20)])
async def test_a_lost_replicas_count_comes_from_its_journal_later(
    bench: Bench, tenant: TenantId, tmp_path: Path, outcome: str, billed: int
) -> None:
    event = make_event(
        tenant_id=tenant, outcome=outcome, counted=False, prompt_tokens=0, completion_tokens=0,
        billed_prompt_tokens=0, billed_completion_tokens=0, replica="http://lost",
    )  # fmt: skip
    journal = Journal(tmp_path)
    await journal.append(event)
    assert await drain_own(bench.db, journal) == 0
    await journal.close()
    assert await bench.rows(event.request_id) == {}
    bench.replicas[0].add(tenant, event.request_id, outcome="aborted")
    assert await bench.reconciler.run_once() == 1  # known to be waiting: no grace needed
    assert await bench.rows(event.request_id) == {1: (outcome, 20, billed)}
    async with bench.db.system_reader() as session:
        waiting = select(UsageUncounted).where(UsageUncounted.request_id == event.request_id)
        assert (await session.scalars(waiting)).all() == []


async def test_the_cursor_waits_for_what_is_not_settled(bench: Bench, tenant: TenantId) -> None:
    cursors, replica = Cursors(bench.db), bench.replicas[0]
    old, new = uuid7(), uuid7()
    replica.add(tenant, old)
    await bench.after_grace()
    assert await cursors.position(replica.journal_id) == 1
    replica.add(tenant, new)
    await bench.reconciler.run_once()
    assert await cursors.position(replica.journal_id) == 1
    bench.restarted()  # forgets what it waited for, and reads it again
    assert await bench.after_grace() == 1
    assert await cursors.position(replica.journal_id) == 2
    assert await bench.rows(new) == {1: ("finished", 20, 20)}


async def test_a_fresh_journal_and_an_absent_replica(bench: Bench, tenant: TenantId) -> None:
    bench.replicas[1].away = True
    bench.replicas[0].add(tenant, uuid7())
    assert await bench.after_grace() == 1
    bench.replicas[0].journal_id, bench.replicas[0].lines = f"journal-{uuid4()}", []
    request = uuid7()
    bench.replicas[0].add(tenant, request)
    assert await bench.after_grace() == 1
    assert await bench.rows(request) == {1: ("finished", 20, 20)}


async def test_lines_of_a_journal_that_was_lost_are_settled_all_the_same(
    bench: Bench, tenant: TenantId
) -> None:
    """The worker died, and the replica was begun anew on an empty disk before the grace was over."""
    request, replica = uuid7(), bench.replicas[0]
    replica.add(tenant, request)
    assert await bench.reconciler.run_once() == 0
    replica.journal_id, replica.lines = f"journal-{uuid4()}", []
    assert await bench.after_grace() == 1
    assert await bench.rows(request) == {1: ("finished", 20, 20)}
    assert bench.reconciler._ended == []


async def test_lines_of_nobody_are_skipped(bench: Bench, tenant: TenantId) -> None:
    last = str(UUID(int=(2**48 - 1) << 80 | 7 << 76 | 0b10 << 62))  # of a time that no datetime holds
    for facts in ({"tenant": ""}, {"request": "made-up"}, {"request": str(uuid4())}, {"request": last}):
        line = msgspec.structs.replace(bench.replicas[0].add(tenant, uuid7()), **facts)
        bench.replicas[0].lines[-1] = line
    assert await bench.after_grace() == 0
    assert await Cursors(bench.db).position(bench.replicas[0].journal_id) == 4


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        ({"ended_at": "9999-12-31T23:59:59.999999+00:00"}, True),
        ({"ended_at": "0001-01-01T00:00:00+14:00"}, True),
        ({"version": "pirate@" + "9" * 300}, True),
        ({"prompt": -1_000_000}, False),
        ({"completion": 2**63}, False),
        ({"outcome": "finished\0"}, False),
        ({"tier": "\0"}, False),
        ({"purpose": "a gift"}, False),
        ({"attempt": 40_000}, False),
        ({"total_ms": 1e300}, False),
    ],
)
async def test_what_one_replica_writes_never_keeps_back_anothers_lines(
    bench: Bench, tenant: TenantId, facts: dict[str, Any], kept: bool
) -> None:
    """What the ledger can't hold is no line: it would refuse all that are written with it."""
    if not kept:
        with pytest.raises(msgspec.ValidationError):
            bench.replicas[0].add(tenant, uuid7(), **facts)
        return
    bench.replicas[0].add(tenant, uuid7(), **facts)
    honest = uuid7()
    bench.replicas[1].add(tenant, honest)
    assert await bench.after_grace() == 2
    assert await bench.rows(honest) == {1: ("finished", 20, 20)}


async def test_only_one_leads(db: Database) -> None:
    async with leadership(db) as leader:
        await leader.confirm()
        async with db.system_session() as session:
            assert not await session.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK})
    async with leadership(db) as leader:
        await leader.confirm()


async def test_partitions_are_made_once(db: Database) -> None:
    await ensure_partitions(db)
    assert await ensure_partitions(db) == 0
