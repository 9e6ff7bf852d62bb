"""Disks that refuse under a worker's journal: rows come late, or unbilled, and never not at all."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

from gateway.db import Database
from gateway.principal import TenantId
from gateway.usage.drain import drain_own, run_drain
from gateway.usage.journal import Journal, Segment
from tests.gateway.usage.test_drain import rows_of
from tests.gateway.usage.test_journal import make_event


async def test_a_disk_that_takes_no_segment_only_delays_the_rows(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    journal = Journal(folder)
    await journal.append(make_event(tenant_id=tenant))
    folder.rename(tmp_path / "aside")
    folder.write_text("")  # no place for another segment
    open_files = len(os.listdir("/proc/self/fd"))
    draining = asyncio.create_task(run_drain(db, journal))
    await asyncio.sleep(2.2)
    assert not draining.done()
    assert await rows_of(db, tenant) == []
    assert len(os.listdir("/proc/self/fd")) <= open_files + 4  # the pool's connections
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    for _ in range(100):
        await asyncio.sleep(0.1)
        if await rows_of(db, tenant):
            break
    draining.cancel()
    assert len(await rows_of(db, tenant)) == 1
    await journal.close()


async def test_a_full_disk_is_made_room_on_by_what_is_drained(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    """The database was away until the journal had filled the disk: then nothing but draining makes room."""
    journal = Journal(tmp_path)
    await journal.append(make_event(tenant_id=tenant))
    journal.rotate()  # what a drain without a database leaves
    await journal.append(make_event(tenant_id=tenant))
    make = journal._new_segment

    def make_if_there_is_room() -> Segment:
        if len(list(tmp_path.glob("*.jsonl"))) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make()

    journal._new_segment = make_if_there_is_room  # type: ignore[method-assign]  # the disk's part
    assert await drain_own(db, journal) == 2
    await journal.close()


async def test_a_journal_folder_that_was_removed_is_made_again(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    journal = Journal(folder)
    shutil.rmtree(folder)
    await journal.append(make_event(tenant_id=tenant))  # into a file without a name: the engine knows it too
    await drain_own(db, journal)
    await journal.append(make_event(tenant_id=tenant))
    assert await drain_own(db, journal) == 1
    await journal.close()


async def test_what_the_disk_refused_is_in_the_ledger_unbilled_before_the_reconciler_looks(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    lost = make_event(tenant_id=tenant, outcome="failed", billed_prompt_tokens=0, billed_completion_tokens=0)
    journal.keep(lost)
    assert await drain_own(db, journal) == 1
    assert await drain_own(db, journal) == 0
    (row,) = await rows_of(db, tenant)
    assert (row.outcome, row.completion_tokens, row.billed_completion_tokens) == ("failed", 4, 0)
    await journal.close()
