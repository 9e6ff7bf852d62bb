from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select, text

from gateway.billing.charging.service import Charging
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import UsageLedger, UsageStaging
from gateway.principal import TenantId
from gateway.usage.drain import drain_dead, drain_own, journalled
from gateway.usage.event import UsageEvent, encode_line
from gateway.usage.journal import Journal
from gateway.usage.repository import give_up_uncounted, insert_events, uncounted_of
from gateway.usage.service import Asked, report
from tests.gateway.usage.test_journal import make_event, segments

DYING_WORKER = """
import asyncio, os, sys, uuid
from datetime import UTC, datetime
from pathlib import Path
from gateway.ids import uuid7
from gateway.usage.event import UsageEvent
from gateway.usage.journal import Journal
from gateway.usage.repository import give_up_uncounted, insert_events, uncounted_of

async def main():
    journal = Journal(Path(sys.argv[1]))
    now = datetime.now(UTC)
    for n in range(int(sys.argv[3])):
        await journal.append(UsageEvent(request_id=uuid7(), attempt=1, tenant_id=uuid.UUID(sys.argv[2]),
        key_id="k",
            base_id="b", outcome="finished", created_at=now, ended_at=now, prompt_tokens=n))
    os.write(journal._segment.fd, b'{"request_id": "torn')
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def rows_of(db: Database, tenant: TenantId) -> list[UsageLedger]:
    async with db.system_reader() as session:
        query = select(UsageLedger).where(UsageLedger.tenant_id == tenant).order_by(UsageLedger.request_id)
        return list(await session.scalars(query))


async def test_a_worker_drains_its_own_and_replay_changes_nothing(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    events = [make_event(tenant_id=tenant, adapter_name="pirate", adapter_version=3) for _ in range(50)]
    for event in events:
        await journal.append(event)
    (segment,) = segments(tmp_path)
    before = segment.read_bytes()
    assert await drain_own(db, journal) == 50
    (tmp_path / "replayed.jsonl").write_bytes(before)
    assert await drain_dead(db, tmp_path) == 0
    rows = await rows_of(db, tenant)
    assert [row.request_id for row in rows] == sorted(event.request_id for event in events)
    assert (rows[0].adapter_name, rows[0].billed_completion_tokens) == ("pirate", 4)
    async with db.system_reader() as session:
        assert await session.scalar(select(func.count()).select_from(UsageStaging)) == 0
    await journal.close()


async def test_a_killed_workers_journal_is_drained_once_it_is_dead(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING_WORKER, str(tmp_path), str(tenant), "20", stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert worker.stdout is not None
    assert await worker.stdout.readline() == b"written\n"
    assert await drain_dead(db, tmp_path) == 0  # it lives: not ours to touch
    assert len(await journalled(tmp_path)) == 20
    worker.kill()
    await worker.wait()
    assert await drain_dead(db, tmp_path) == 20
    assert [row.prompt_tokens for row in await rows_of(db, tenant)] == list(range(20))
    assert segments(tmp_path) == []


async def test_a_damaged_segment_is_kept_aside(db: Database, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"not json\n")
    assert await drain_dead(db, tmp_path) == 0
    assert (tmp_path / "x.damaged").read_bytes() == b"not json\n"


async def test_the_sound_lines_of_a_damaged_segment_are_taken(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    """A power cut can leave a hole of zeros between lines that were synced and lines that were not."""
    before, after = make_event(tenant_id=tenant, source="cache"), make_event(tenant_id=tenant)
    hole = b"\0" * 512 + b"\n"
    (tmp_path / "x.jsonl").write_bytes(encode_line(before) + hole + encode_line(after) + b'{"torn')
    assert (before.request_id, 1) in await journalled(tmp_path)
    assert await drain_dead(db, tmp_path) == 2
    assert {row.request_id for row in await rows_of(db, tenant)} == {before.request_id, after.request_id}
    assert hole in (tmp_path / "x.damaged").read_bytes()


async def test_totals_are_billed_tokens_by_day_and_adapter(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    def event(**more: object) -> UsageEvent:
        return make_event(tenant_id=tenant, **more)

    retried = uuid7()
    journal = Journal(tmp_path)
    for each in (
        event(),
        event(adapter_name="pirate"),
        event(
            adapter_name="pirate",
            request_id=retried,
            outcome="failed",
            billed_prompt_tokens=0,
            billed_completion_tokens=0,
        ),
        event(adapter_name="pirate", request_id=retried, attempt=2),
        event(purpose="probe"),
    ):
        await journal.append(each)
    await drain_own(db, journal)
    await journal.close()
    await Charging(db).run_once()
    today = datetime.now(UTC).date()
    found = await report(db, tenant, Asked())
    assert [(r.day, r.adapter, r.requests, r.prompt_tokens, r.completion_tokens) for r in found.data] == [
        (today, None, 1, 3, 4),
        (today, "pirate", 2, 6, 8),
    ]
    assert (found.requests, found.completion_tokens) == (3, 12)
    earlier = await report(db, tenant, Asked(today - timedelta(days=9), today - timedelta(days=1)))
    assert earlier.data == []


async def test_what_waits_for_a_count_outlives_a_crash_of_the_database(db: Database) -> None:
    """An unlogged table is emptied by crash recovery: only what no transaction leaves may lie in one."""
    async with db.system_reader() as session:
        query = text(
            "SELECT relname, relpersistence::text FROM pg_class"
            " WHERE relname LIKE 'usage_%' AND relkind = 'r'"
        )
        rows = (await session.execute(query)).all()
    kinds = {str(row[0]): str(row[1]) for row in rows}
    assert kinds.pop("usage_staging") == "u"
    assert "usage_uncounted" in kinds
    assert set(kinds.values()) == {"p"}


async def test_a_count_that_never_came_is_given_up_after_a_day(db: Database, tenant: TenantId) -> None:
    old, new = (
        make_event(
            tenant_id=tenant,
            counted=False,
            outcome="failed",
            ended_at=datetime.now(UTC) - age,
            billed_prompt_tokens=0,
            billed_completion_tokens=0,
        )
        for age in (timedelta(hours=25), timedelta(hours=23))
    )
    async with db.system_session() as session:
        assert await insert_events(session, [old, new, old]) == 0
        assert await give_up_uncounted(session) == 1
        assert [row.request_id for row in await uncounted_of(session, [old.request_id, new.request_id])] == [
            new.request_id
        ]
    (row,) = await rows_of(db, tenant)
    assert (row.request_id, row.outcome, row.billed_prompt_tokens, row.billed_completion_tokens) == (
        old.request_id,
        "failed",
        0,
        0,
    )
