"""Old and new weights of a base side by side: who goes where, who is proved, who is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.db import Database
from gateway.errors import Conflict, NotFound
from gateway.principal import TenantId
from gateway.replicas import repository as replicas
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Replica
from gateway.replicas.want import Want
from gateway.upgrades.enlisting import Enlisting
from gateway.upgrades.schemas import UpgradeEnd, UpgradeOut
from gateway.upgrades.service import Upgrades
from tests.gateway.catalog.test_intake import ACTOR, Room
from tests.gateway.inference.upstream import TOKEN, Upstream
from tests.gateway.proofs.test_proving import swept, who

OLD, NEW = "d" * 64, "e" * 64


@asynccontextmanager
async def new_replica(room: Room) -> AsyncIterator[Upstream]:
    """One with the new weights joins those with the old ones."""
    upstream = Upstream()
    upstream.base_digest = NEW
    async with upstream.running(), ReplicaSession(connect_timeout_s=2, max_connections=8) as session:
        driver = MotetDriver(session, upstream.url, TOKEN)
        room.registry.set_replicas([*room.registry.all, Replica(upstream.url, driver)])
        await room.registry.poll_once()
        yield upstream


async def enlist(room: Room) -> int:
    async def served() -> frozenset[str]:
        return room.registry.digests

    return await Enlisting(room.database, room.base.base_id, served).run_once()


async def want(room: Room, tenant: TenantId, model: str) -> Want:
    adapter = (await room.catalog.resolve(await who(room, tenant), model)).adapter
    assert adapter is not None
    return Want(adapter.artefact, digests=adapter.digests)


async def told(upgrades: Upgrades, base_id: str) -> UpgradeOut:
    (found,) = next(base for base in await upgrades.bases() if base.id == base_id).upgrades
    return found


def counts(told: UpgradeOut) -> tuple[str, int, int, int]:
    return told.state, told.proved, told.failed, told.left


async def test_adapters_follow_to_new_weights_as_they_are_proved_there(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    base_id = room.base.base_id
    upgrades = Upgrades(room.database, base_id, settled=False)
    with pytest.raises(Conflict):
        await upgrades.begin(ACTOR, base_id, NEW)  # nothing serves yet
    async with room.database.system_session() as session:
        await replicas.set_digests(session, base_id, [OLD])
    await room.upload(tenant, "good", small)
    await room.upload(tenant, "bad", other)
    assert counts(await upgrades.begin(ACTOR, base_id, NEW)) == ("proving", 0, 0, 2)
    async with new_replica(room) as fresh:
        old, new = room.registry.all
        for model in ("good", "bad"):
            for _ in range(4):
                assert room.registry.choose(await want(room, tenant, model)) is old
        assert room.registry.choose(Want()) is not None
        good = (await want(room, tenant, "good")).artefact
        assert await enlist(room) == 2
        assert await enlist(room) == 0
        fresh.proof_failure = ("dense", "the fused product is off")
        fresh.proof_passes = {good}
        assert await swept(room) == 2
        assert (await want(room, tenant, "good")).digests == frozenset({OLD, NEW})
        assert (await want(room, tenant, "bad")).digests == frozenset({OLD})  # and goes on where it passed
        assert room.registry.choose(await want(room, tenant, "good"), tried=[old]) is new
        assert room.registry.choose(await want(room, tenant, "bad"), tried=[old]) is old
        assert counts(await told(upgrades, base_id)) == ("proving", 1, 1, 0)
        assert await enlist(room) == 0  # what failed is not asked again by itself
    ((_, left),) = await upgrades.left_behind(base_id, NEW, None, 10)
    assert (left.id, left.tenant, left.reason) == ("bad@1", tenant, "dense: the fused product is off")
    with pytest.raises(Conflict, match="1 versions failed"):
        await upgrades.end(ACTOR, base_id, NEW, UpgradeEnd("new"))
    ended = await upgrades.end(ACTOR, base_id, NEW, UpgradeEnd("new", leave_behind=True))
    assert ended.state == "finished"
    assert await _digests(room.database, base_id) == [NEW]
    with pytest.raises(NotFound):
        await upgrades.end(ACTOR, base_id, NEW, UpgradeEnd("old"))


async def test_an_upgrade_may_be_abandoned(room: Room, tenant: TenantId, small: Path) -> None:
    base_id = room.base.base_id
    upgrades = Upgrades(room.database, base_id, settled=False)
    async with room.database.system_session() as session:
        await replicas.set_digests(session, base_id, [OLD])
    await upgrades.begin(ACTOR, base_id, NEW)
    with pytest.raises(Conflict):
        await upgrades.begin(ACTOR, base_id, NEW)
    assert await _digests(room.database, base_id) == [OLD, NEW]
    await upgrades.end(ACTOR, base_id, NEW, UpgradeEnd("old"))
    assert await _digests(room.database, base_id) == [OLD]
    with pytest.raises(Conflict, match="MOTET_BASE_DIGESTS"):
        await Upgrades(room.database, base_id, settled=True).begin(ACTOR, base_id, NEW)


async def test_adapters_of_another_base_are_told_apart(room: Room, tenant: TenantId, small: Path) -> None:
    await room.upload(tenant, "pirate", small)
    upgrades = Upgrades(room.database, "f" * 64, settled=False)
    rows = await upgrades.left_behind("f" * 64, None, None, 10_000)
    mine = [left for _, left in rows if left.tenant == tenant]
    assert [(left.id, left.base_id, left.reason) for left in mine] == [
        ("pirate@1", room.base.base_id, "other_base")
    ]


async def test_weights_that_changed_under_a_fleet_take_no_adapter_unproved(
    room: Room, tenant: TenantId, small: Path
) -> None:
    """No upgrade was begun: an operator let other weights in, and took the old ones away."""
    await room.upload(tenant, "pirate", small)
    room.replica.base_digest = NEW
    await room.registry.poll_once()
    assert room.registry.choose(await want(room, tenant, "pirate")) is None
    assert room.registry.choose(Want()) is not None
    assert await enlist(room) == 1
    assert await swept(room) == 1
    assert room.registry.choose(await want(room, tenant, "pirate")) is room.registry.all[0]


async def _digests(database: Database, base_id: str) -> list[str] | None:
    async with database.system_reader() as session:
        return await replicas.digests_of(session, base_id)
