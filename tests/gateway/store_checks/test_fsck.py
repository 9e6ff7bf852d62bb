"""The store against the catalog, over a real store and a real database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from adapters.store import ObjectStore, StoreError, artefact_path, open_store
from deploy.local.services import free_port
from gateway.catalog import repository
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.ids import uuid7
from gateway.store_checks import fsck as module
from gateway.store_checks.fsck import ORPHAN_AGE_S, Fsck
from gateway.store_checks.metrics import MISSING
from tests.gateway.catalog.test_intake import RecordedHints


@dataclass
class Room:
    db: Database
    store: ObjectStore
    root: Path
    fsck: Fsck

    def put(self, path: str, *, age_s: float = 2 * ORPHAN_AGE_S) -> str:
        source = self.root / "source"
        source.write_bytes(b"packed")
        self.store.put_file(source, path)
        then = time.time() - age_s
        os.utime(self.root / "store" / path, (then, then))
        return path

    async def version(self, line: Line, artefact: str) -> int:
        async with self.db.tenant_session(line.tenant) as session:
            adapter = await repository.lock_or_add_adapter(session, line, "pirate")
            version = await repository.add_version(session, adapter, NewVersion(artefact, artefact, {}, 6))
            return version.number

    async def retire(self, line: Line, number: int) -> None:
        async with self.db.tenant_session(line.tenant) as session:
            adapter = await repository.lock_or_add_adapter(session, line, "pirate")
            await repository.retire_versions(session, adapter, number)


@pytest.fixture
def room(db: Database, tmp_path: Path) -> Room:
    store = open_store(f"file://{tmp_path}/store")
    return Room(db, store, tmp_path, Fsck(db, Shelf(db, store, RecordedHints())))


def new_artefact() -> str:
    return uuid4().hex * 2


async def test_what_nobody_refers_to_goes_once_it_is_old(room: Room, line: Line) -> None:
    kept, retired, orphan, young = (new_artefact() for _ in range(4))
    of_line: Callable[[str], str] = lambda artefact: artefact_path(str(line.tenant), artefact)  # noqa: E731
    for artefact in (kept, retired, orphan):
        room.put(of_line(artefact))
    room.put(of_line(young), age_s=60)
    await room.version(line, kept)
    await room.retire(line, await room.version(line, retired))
    assert await room.fsck.remove_orphans() == 2
    assert sorted(room.store.list("")) == sorted([of_line(kept), of_line(young)])
    assert await room.fsck.remove_orphans() == 0


async def test_what_is_not_ours_stays(room: Room, line: Line) -> None:
    """Of a tenant that this database doesn't know (two platforms on one bucket, say), or of another form."""
    stranger = room.put(artefact_path(str(uuid7()), new_artefact()))
    others = [
        room.put(f"tenants/{line.tenant}/artefacts/{new_artefact()}/v9/adapter.motet"),
        room.put(f"tenants/{line.tenant}/notes/readme"),
        room.put(artefact_path("not-a-tenant-id", new_artefact())),
        room.put("backup/tenants"),
    ]
    assert await room.fsck.remove_orphans() == 0
    assert set(room.store.list("")) == {stranger, *others}


async def test_many_pages(room: Room, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    artefacts = [new_artefact() for _ in range(10)]
    for artefact in artefacts:
        room.put(artefact_path(str(line.tenant), artefact))
    await room.version(line, artefacts[0])
    assert await room.fsck.remove_orphans() == 9
    assert await room.fsck.find_missing() >= 0
    assert list(room.store.list("")) == [artefact_path(str(line.tenant), artefacts[0])]


async def test_a_version_without_its_artefact_is_reported(
    room: Room, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """Versions of other tests are lost to this store as well: the difference counts."""
    before = await room.fsck.find_missing()
    there, lost = new_artefact(), new_artefact()
    room.put(artefact_path(str(line.tenant), there))
    await room.version(line, there)
    await room.version(line, lost)
    assert await room.fsck.find_missing() == before + 1
    assert MISSING._value.get() == before + 1


async def test_a_store_that_is_away_is_an_error_of_the_job(
    db: Database, line: Line, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    await room.version(line, new_artefact())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    away = open_store(f"s3://bucket/prefix?endpoint=http://127.0.0.1:{free_port()}")
    fsck = Fsck(db, Shelf(db, away, RecordedHints()))
    for job in (fsck.remove_orphans, fsck.find_missing):
        with pytest.raises(StoreError):
            await job()
