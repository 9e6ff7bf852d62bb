"""Objects that the store loses: found, said, mended; and checks that an operator asks for over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from litestar.testing import TestClient
from redis.asyncio import Redis

from adapters.store import artefact_path
from gateway.catalog import stored
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.spool import Spool
from gateway.db import Database, SystemRead
from gateway.errors import AdapterLost, Conflict
from gateway.models import CheckState
from gateway.principal import TenantId
from gateway.store_checks.fsck import Fsck
from gateway.store_checks.lost import Lost
from gateway.store_checks.schemas import CheckIn
from gateway.store_checks.service import CheckJob, StoreChecks
from gateway.tenants.epochs import Epochs
from tests.gateway.catalog.test_intake import ACTOR, Room, base, other, principal, room, small
from tests.gateway.conftest import Operator

__all__ = ["base", "other", "room", "small"]


@pytest.fixture
def only_mine(tenant: TenantId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of other tests have their objects in stores of their own: to this one they are lost."""
    of_all = stored.list_stored

    async def of_mine(session: SystemRead, after: UUID, limit: int) -> Any:
        return [row for row in await of_all(session, after, 100_000) if row[1] == tenant]

    monkeypatch.setattr(stored, "list_stored", of_mine)


@dataclass
class Ward:
    room: Room
    fsck: Fsck
    tenant: TenantId
    root: Path

    def file(self, artefact: str) -> Path:
        return file_of(self.root, self.tenant, artefact)

    async def resolves(self, model: str, epoch: int) -> bool:
        return (await self.room.catalog.resolve(principal(self.tenant, epoch), model)).adapter is not None


@pytest.fixture
def ward(room: Room, db: Database, redis: Redis, tenant: TenantId, tmp_path: Path, only_mine: None) -> Ward:
    lost = Lost(db, Epochs(redis))
    return Ward(room, Fsck(db, Shelf(db, room.store, room.hints), lost, orphan_age_s=0), tenant, tmp_path)


def file_of(tmp_path: Path, tenant: TenantId, artefact: str) -> Path:
    return tmp_path / "store" / artefact_path(str(tenant), artefact)


def harm(file: Path, whole: bytes, fault: str) -> None:
    if fault == "missing":
        file.unlink()
    elif fault == "truncated":
        file.write_bytes(whole[:-1])
    else:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))


@pytest.mark.parametrize("fault", ["missing", "truncated", "corrupt"])
async def test_what_is_lost_says_so_until_it_is_uploaded_again_or_put_back(
    fault: str, ward: Ward, small: Path, other: Path
) -> None:
    artefact = (await ward.room.upload(ward.tenant, "pirate", small)).version.artefact
    await ward.room.upload(ward.tenant, "sound", other)
    file = ward.file(artefact)
    whole = file.read_bytes()
    harm(file, whole, fault)
    found = await ward.fsck.check(repair=False, depth="full")
    assert [each.what for each in found.examples if each.artefact == artefact] == [fault]
    assert (found.missing + found.truncated + found.corrupt, found.kept) == (1, 2)
    assert await ward.resolves("pirate", 90)
    assert (await ward.fsck.check(repair=True, depth="full")).marked_lost == 1
    with pytest.raises(AdapterLost) as lost:
        await ward.resolves("pirate", 91)
    assert (lost.value.status, lost.value.code) == (503, "adapter_lost")
    assert await ward.resolves("sound", 91)

    again = await ward.room.upload(ward.tenant, "pirate", small)
    assert (again.created, again.version.number, file.read_bytes()) == (False, 1, whole)
    assert await ward.resolves("pirate", 92)

    harm(file, whole, fault)
    assert (await ward.fsck.check(repair=True, depth="full")).marked_lost == 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(whole)  # out of a backup
    assert (await ward.fsck.check(repair=True, depth="listed")).found_again == 1
    assert await ward.resolves("pirate", 93)


async def test_what_died_with_its_process_is_cleared_away(
    room: Room, db: Database, tenant: TenantId, small: Path, tmp_path: Path, only_mine: None
) -> None:
    artefact = (await room.upload(tenant, "pirate", small)).version.artefact
    file = file_of(tmp_path, tenant, artefact)
    (file.parent / ".adapter.motet.1.0.tmp").touch()
    spool = Spool(tmp_path / "exports", "export-")
    (spool.root / "export-left").mkdir(parents=True)
    orphan = file_of(tmp_path, tenant, "ab" * 32)
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"nobody's")
    fsck = Fsck(db, Shelf(db, room.store, room.hints), spools=[spool], orphan_age_s=-60)
    with spool.directory() as in_use:
        seen = await fsck.check(repair=False, depth="listed")
        assert (seen.orphans, seen.unfinished, seen.leftovers, seen.removed) == (1, 1, 1, 0)
        mended = await fsck.check(repair=True, depth="listed")
        assert (mended.removed, mended.discarded) == (1, 2)
        assert in_use.exists()
    seen = await fsck.check(repair=False, depth="listed")
    assert (seen.orphans, seen.unfinished, seen.leftovers) == (0, 0, 0)
    assert list(room.store.list("")) == [artefact_path(str(tenant), artefact)]


async def test_an_operator_asks_control_makes_it(
    client: TestClient[Any], operator: Operator, room: Room, db: Database, tmp_path: Path
) -> None:
    state = client.get("/api/v1/store", headers=operator.headers).json()
    assert (state["kind"], state["reachable"], state["code"]) == ("folder", True, None)
    asked = client.post("/api/v1/store/fsck", json={"repair": False}, headers=operator.headers)
    assert (asked.status_code, asked.json()["state"]) == (202, "waiting")
    checks = StoreChecks(db, room.store, f"file://{tmp_path}/store")
    with pytest.raises(Conflict):
        await checks.ask(ACTOR, CheckIn())
    job = CheckJob(db, Fsck(db, Shelf(db, room.store, room.hints)))
    assert await job.run_once() == 1
    assert await job.run_once() == 0
    url = f"/api/v1/store/fsck/{asked.json()['id']}"
    done = client.get(url, headers=operator.headers).json()
    assert (done["state"], done["found"]["stored"]) == (CheckState.DONE, 0)
    listed = client.get("/api/v1/store/fsck?limit=1", headers=operator.headers).json()
    assert listed["data"][0]["id"] == done["id"]
    assert client.get("/api/v1/store", headers=operator.headers).json()["last_check"]["id"] == done["id"]
