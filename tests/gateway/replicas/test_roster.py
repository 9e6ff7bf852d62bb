"""A worker's replicas follow the database, and only the right weights serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from uuid import uuid4

import msgspec
import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from gateway.answers.sealing import DataKeys
from gateway.audit.service import SYSTEM
from gateway.catalog.repository import Line
from gateway.db import Database
from gateway.errors import Conflict
from gateway.models import BaseModel, Replica, ReplicaPurge, ReplicaState
from gateway.replicas import service as service_module
from gateway.replicas import watching as watching_module
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Registry
from gateway.replicas.replica import IN_HOST, ON_DISK
from gateway.replicas.roster import Roster, RosterNeeds
from gateway.replicas.schemas import Registration, ReplicaCreate, ReplicaPatch, RuleBody
from gateway.replicas.service import UNLISTED_AFTER, Replicas, purge
from gateway.replicas.tokens import ReplicaTokens
from gateway.replicas.want import Want
from gateway.retirement import repository as purges
from gateway.retirement.repository import Asked
from tests.gateway.replicas.engine import Engine

TOKENS = ReplicaTokens(DataKeys(SecretStr("data-key-" * 4)), ("engine-token-of-tests",))
WEIGHTS, OTHERS = "a" * 64, "b" * 64


class World:
    """One base, its database rows, and any number of workers."""

    def __init__(self, db: Database, line: Line, stack: AsyncExitStack) -> None:
        self.db, self.base_id, self._stack = db, line.base_id, stack
        self.service = Replicas(db, line.base_id, TOKENS, Registry([]))

    async def engine(self, digest: str | None = WEIGHTS, base_id: str | None = None) -> Engine:
        return await self._stack.enter_async_context(Engine(base_id or self.base_id, digest).running())

    async def worker(
        self, *listed: Engine, digests: str = "", keep_removed: bool = False
    ) -> tuple[Registry, Roster]:
        session = await self._stack.enter_async_context(
            ReplicaSession(connect_timeout_s=1, max_connections=8)
        )
        registry = Registry([])
        needs = RosterNeeds(
            db=self.db,
            base_id=self.base_id,
            listed=[engine.url for engine in listed],
            digests=digests,
            tokens=TOKENS,
            make_driver=partial(MotetDriver, session),
        )
        roster = Roster(needs, registry, keep_removed=keep_removed)
        await know(registry, roster)
        return registry, roster

    async def add(self, engine: Engine) -> Replica:
        await self.service.create(SYSTEM, ReplicaCreate(engine.url))
        async with self.db.system_reader() as session:
            return (await session.scalars(select(Replica).where(Replica.url == engine.url))).one()


async def know(registry: Registry, roster: Roster) -> None:
    await roster.refresh()
    await registry.poll_once()
    await roster.refresh()


def usable(registry: Registry) -> set[str]:
    return {replica.url for replica in registry.all if replica.usable}


@pytest.fixture
async def world(db: Database, line: Line) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(db, line, stack)


async def test_workers_follow_what_is_added_drained_and_removed(world: World) -> None:
    listed, added = await world.engine(), await world.engine()
    registry, roster = await world.worker(listed)
    assert usable(registry) == {listed.url}
    kept = registry.all[0]
    row = await world.add(added)
    await know(registry, roster)
    assert usable(registry) == {listed.url, added.url}
    assert kept in registry.all, "what runs there goes on"
    await world.service.change(SYSTEM, row.id, ReplicaPatch(state="draining"))
    await roster.refresh()
    assert {replica.url for replica in registry.all} == {listed.url, added.url}
    assert {registry.choose().url for _ in range(8)} == {listed.url}  # type: ignore[union-attr]  # one is usable
    await world.service.remove(SYSTEM, row.id)
    await roster.refresh()
    assert [replica.url for replica in registry.all] == [listed.url]


async def test_an_address_that_is_none_stops_no_worker(world: World) -> None:
    added, broken = await world.engine(), await world.engine()
    registry, roster = await world.worker()
    await world.add(added)
    row = await world.add(broken)
    async with world.db.system_session() as session:  # as an earlier release took it
        bad = f"http://{row.id.hex[:12]}:eVY"
        await session.execute(update(Replica).where(Replica.id == row.id).values(url=bad))
    await roster.refresh()
    assert [replica.url for replica in registry.all] == [added.url]


async def test_one_that_owes_a_purge_gets_nothing_until_it_has_purged(
    world: World, db: Database, line: Line
) -> None:
    first, second = await world.engine(), await world.engine()
    registry, roster = await world.worker(first, second)
    await know(registry, roster)
    purged = (line.tenant, "ab" * 32)
    for state, expected in (
        (ReplicaPurge.HELD, {first.url, second.url}),  # slow: it goes on serving
        (ReplicaPurge.AWAY, {first.url}),
        (ReplicaPurge.PURGED, {first.url, second.url}),
    ):
        async with db.system_session() as session:
            await purges.begin(session, purged, "system")
            await purges.note_replicas(session, purged, [Asked(second.url, uuid4(), state)])
        await know(registry, roster)
        assert usable(registry) == expected, state


async def test_a_listed_replica_can_be_drained_and_removed_too(world: World) -> None:
    listed = await world.engine()
    registry, roster = await world.worker(listed)
    async with world.db.system_reader() as session:
        row = (await session.scalars(select(Replica).where(Replica.url == listed.url))).one()
    assert (row.source, row.state) == ("listed", ReplicaState.UP)
    await world.service.change(SYSTEM, row.id, ReplicaPatch(state="draining"))
    await roster.refresh()
    assert registry.choose() is None
    await world.service.remove(SYSTEM, row.id)
    again, _ = await world.worker(listed)
    assert again.all == []
    long_ago = Replica.created_at - timedelta(days=2)
    async with world.db.system_session() as session:
        await session.execute(
            update(Replica).where(Replica.id == row.id).values(seen_at=long_ago, removed_at=long_ago)
        )
    await roster.refresh()
    assert await purge(world.db, world.base_id) == 0, "the settings would bring it back, and undrained"


async def test_what_no_settings_list_any_more_goes_after_a_while(world: World) -> None:
    """A platform that restarts with other ports, or a smaller one."""
    before, now = await world.engine(), await world.engine()
    await world.worker(before)
    registry, roster = await world.worker(now)

    async def age(by: timedelta) -> None:
        async with world.db.system_session() as session:
            since = Replica.seen_at - by
            await session.execute(
                update(Replica).where(Replica.base_id == world.base_id).values(seen_at=since)
            )
        await roster.refresh()

    await age(UNLISTED_AFTER / 2)
    assert await purge(world.db, world.base_id) == 0
    await age(UNLISTED_AFTER)
    assert await purge(world.db, world.base_id) == 1
    assert [replica.url for replica in await world.service.page(None, 9)] == [now.url]
    assert usable(registry) == {now.url}


async def test_other_weights_get_nothing_until_they_are_admitted(world: World) -> None:
    right, wrong = await world.engine(WEIGHTS), await world.engine(OTHERS)
    registry, roster = await world.worker(right)
    second, second_roster = await world.worker(wrong)
    assert usable(registry) == {right.url}
    assert usable(second) == set(), "the first weights were written down for all workers"
    assert "other weights" in (second.all[0].unfit or "")
    await world.service.set_weights(SYSTEM, [WEIGHTS, OTHERS])
    await second_roster.refresh()
    assert usable(second) == {wrong.url}
    await world.service.set_weights(SYSTEM, [OTHERS])
    await roster.refresh()
    assert usable(registry) == set()


async def test_another_base_never_serves_this_one(world: World) -> None:
    stranger = await world.engine(base_id="f" * 64)
    for digests in ("", "any", WEIGHTS):
        registry, _ = await world.worker(stranger, digests=digests)
        assert registry.all[0].healthy
        assert registry.choose() is None
        assert "another base" in (registry.all[0].unfit or "")


async def test_nothing_is_sent_before_weights_are_settled(world: World) -> None:
    engine = await world.engine()
    registry, roster = await world.worker()
    await world.add(engine)
    await roster.refresh()
    await registry.poll_once()
    assert registry.choose() is None
    await roster.refresh()
    assert usable(registry) == {engine.url}


async def test_one_that_does_not_say_what_it_holds_needs_somebody_to_vouch_for_it(world: World) -> None:
    silent, added = await world.engine(None), await world.engine(None)
    registry, roster = await world.worker(silent)
    await world.add(added)
    await know(registry, roster)
    await registry.poll_once()
    assert usable(registry) == {silent.url}


async def test_rules_and_pools_are_followed(world: World) -> None:
    general, long = await world.engine(), await world.engine()
    registry, roster = await world.worker(general, long)
    async with world.db.system_reader() as session:
        row = (await session.scalars(select(Replica).where(Replica.url == long.url))).one()
    await world.service.change(SYSTEM, row.id, ReplicaPatch(pools=["long"]))
    await world.service.set_rules(SYSTEM, [RuleBody(pool="long", min_prompt_tokens=8_000)])
    await roster.refresh()
    assert [rule.min_prompt_tokens for rule in registry.rules] == [8_000]

    def chosen(want: Want) -> str | None:
        found = registry.choose(want)
        return None if found is None else found.url

    assert chosen(Want()) == general.url
    assert chosen(Want(pool="long")) == long.url
    await world.service.change(SYSTEM, row.id, ReplicaPatch(state="draining"))
    await roster.refresh()
    assert chosen(Want(pool="long")) == general.url
    assert chosen(Want(pool="long", fallback=False)) is None


async def test_a_database_that_is_away_changes_nothing(world: World) -> None:
    engine = await world.engine()
    registry, roster = await world.worker(engine)
    away = Database("postgresql://nobody@127.0.0.1:1/none", "postgresql://nobody@127.0.0.1:1/none")
    object.__setattr__(roster._needs, "db", away)
    task = asyncio.create_task(roster.run())
    await asyncio.sleep(0.1)
    assert not task.done()
    assert usable(registry) == {engine.url}
    task.cancel()
    await away.close()


async def test_control_keeps_reading_what_was_removed_until_it_is_forgotten(world: World) -> None:
    engine = await world.engine()
    row = await world.add(engine)
    registry, roster = await world.worker(keep_removed=True)
    driver = roster.drivers[0]
    await world.service.remove(SYSTEM, row.id)
    await roster.refresh()
    assert registry.all == []
    assert roster.drivers == [driver]
    assert await purge(world.db, world.base_id) == 0
    long_ago = Replica.created_at - timedelta(days=2)
    async with world.db.system_session() as session:
        await session.execute(
            update(Replica).where(Replica.id == row.id).values(seen_at=long_ago, removed_at=long_ago)
        )
    assert await purge(world.db, world.base_id) == 1
    await roster.refresh()
    assert roster.drivers == []


async def until(happened: Callable[[], object]) -> None:
    for _ in range(500):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def test_a_stream_of_states_tells_changes_as_they_happen(world: World) -> None:
    engine = await world.engine()
    registry, _ = await world.worker(engine)
    replica = registry.all[0]
    watching = asyncio.create_task(registry.run())
    await until(lambda: engine.streams == 1)

    def told(artefact: str) -> bool:
        return replica.held == {artefact: IN_HOST}

    for artefact in ("x", "y"):
        engine.host = [artefact]
        engine.tell()
        await until(partial(told, artefact))
    assert replica.residency("x") == ON_DISK
    assert engine.asked == 5, "two looks at first, one before the stream, and nothing more"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_core_that_hangs_behind_its_stream_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching_module, "ASK_S", 0.05)
    engine = await world.engine()
    registry, _ = await world.worker(engine)
    watching = asyncio.create_task(registry.run())
    await until(lambda: engine.streams == 1)
    engine.ready = False
    await until(lambda: registry.num_healthy == 0)
    engine.ready = True
    await until(lambda: registry.num_healthy == 1)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_replica_that_dies_is_noticed_by_its_stream(world: World) -> None:
    async with Engine(world.base_id, WEIGHTS).running() as engine:
        registry, _ = await world.worker(engine)
        watching = asyncio.create_task(registry.run())
        await until(lambda: engine.streams == 1)
        assert registry.num_healthy == 1
    await until(lambda: registry.num_healthy == 0)
    assert registry.all[0].life == 1
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_bases_do_not_mix(world: World, db: Database) -> None:
    other = uuid4().hex * 2
    async with db.system_session() as session:
        session.add(BaseModel(base_id=other, name=f"base-{other[:12]}", spec={}))
    engine = await world.engine(base_id=other)
    await Replicas(db, other, TOKENS, Registry([])).create(SYSTEM, ReplicaCreate(engine.url))
    registry, _ = await world.worker()
    assert registry.all == []
    assert await world.service.page(None, 10) == []


async def test_one_that_registers_twice_at_a_time_is_one(world: World) -> None:
    said = Registration("http://r.example:1", world.base_id, "own-token-0123456789", WEIGHTS)
    told = await asyncio.gather(*(world.service.register(said) for _ in range(4)), return_exceptions=True)
    refused = [one for one in told if isinstance(one, BaseException)]
    assert all(isinstance(one, Conflict) for one in refused)
    assert len({one.id for one in told if not isinstance(one, BaseException)}) == 1
    assert len(await world.service.page(None, 10)) == 1


async def test_there_are_only_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_REPLICAS", 2)
    said = Registration("http://r0.example:1", world.base_id, "own-token-0123456789", WEIGHTS)
    for number in range(2):
        await world.service.register(msgspec.structs.replace(said, url=f"http://r{number}.example:1"))
    third = msgspec.structs.replace(said, url="http://r2.example:1")
    with pytest.raises(Conflict, match="2 replicas"):
        await world.service.register(third)
    async with world.db.system_session() as session:
        await session.execute(
            update(Replica)
            .where(Replica.url == "http://r0.example:1")
            .values(seen_at=Replica.created_at - timedelta(hours=1))
        )
    assert (await world.service.register(third)).state == ReplicaState.UP
