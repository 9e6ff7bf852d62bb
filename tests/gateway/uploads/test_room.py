"""A tenant's allowance, held while bytes arrive: exactly, however many come at once and by whatever way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from gateway.audit.service import Actor
from gateway.catalog.intake import Body, Upload
from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART
from gateway.db import Database
from gateway.errors import Conflict
from gateway.principal import TenantId
from gateway.uploads import repository
from gateway.uploads.room import STEP_BYTES, Allowance, Room
from tests.gateway.uploads.conftest import STORED, TUS, Bench, multipart

MIB = 1 << 20


@contextmanager
def allowing(bench: Bench, **most: int) -> Iterator[None]:
    room = bench.services.intake.room
    before, room.allowance = room.allowance, Allowance(**most)
    try:
        yield
    finally:
        room.allowance = before


async def taken(db: Database, tenant: TenantId) -> int:
    async with db.tenant_reader(tenant) as session:
        return (await repository.taken_by(session, tenant)).num_bytes


async def test_holds_at_once_never_find_the_same_room(db: Database, tenant: TenantId) -> None:
    room = Room(db, Allowance(num_bytes=100))

    async def ask(number: int) -> bool:
        async with room.hold(tenant, f"place-{number}") as hold:
            try:
                await hold.reach(30)
            except Conflict as full:
                return full.code != "adapter_storage_full"
            finally:
                await together.wait()
            return True

    together = asyncio.Barrier(8)
    granted = await asyncio.gather(*(ask(number) for number in range(8)))
    assert sum(granted) == 3
    assert await taken(db, tenant) == 0  # each ended


async def test_versions_at_once_never_find_the_same_place(db: Database, tenant: TenantId) -> None:
    room = Room(db, Allowance(versions=2))

    async def ask(number: int) -> bool:
        async with room.hold(tenant, f"place-{number}") as hold:
            try:
                await hold.become_version(1)
            except Conflict as full:
                return full.code != "too_many_versions"
            finally:
                await together.wait()
            return True

    together = asyncio.Barrier(5)
    assert sum(await asyncio.gather(*(ask(number) for number in range(5)))) == 2


async def test_a_hold_of_unknown_length_takes_steps_and_the_last_of_the_room(
    db: Database, tenant: TenantId
) -> None:
    room = Room(db, Allowance(num_bytes=STEP_BYTES * 2))
    async with room.hold(tenant, "place") as hold:
        await hold.reach(10, step=STEP_BYTES)
        assert await taken(db, tenant) == hold.num_bytes == STEP_BYTES + 10
        await hold.reach(STEP_BYTES + 11, step=STEP_BYTES)
        assert hold.num_bytes == STEP_BYTES * 2
        with pytest.raises(Conflict):
            await hold.reach(STEP_BYTES * 2 + 1, step=STEP_BYTES)
        await hold.become_version(7)
        assert await taken(db, tenant) == 7


def test_an_upload_takes_its_room_when_it_is_begun_and_gives_it_back(bench: Bench) -> None:
    with allowing(bench, num_bytes=10 * MIB):
        place = bench.begin(WEIGHTS_PART, 6 * MIB)
        refused = bench.create(WEIGHTS_PART, 5 * MIB)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "adapter_storage_full")
        assert bench.request("DELETE", place, headers=TUS).status_code == 204
        bench.begin(WEIGHTS_PART, 10 * MIB)


def test_multipart_is_refused_by_what_it_announces(bench: Bench, files: dict[str, bytes]) -> None:
    with allowing(bench, num_bytes=5 * MIB):
        bench.begin(WEIGHTS_PART, 4 * MIB)
        refused = bench.post("a", multipart((WEIGHTS_PART, bytes(2 * MIB))))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "adapter_storage_full")
        assert bench.version("a", uploads=[bench.sent(CONFIG_PART, b"{}")]).status_code == 400
        good = multipart(*files.items())
        assert bench.post("a", good).status_code == STORED


async def test_multipart_without_a_length_is_refused_as_it_arrives(bench: Bench, db: Database) -> None:
    """Through the intake of the gateway itself: the client of the tests announces every length."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield multipart((WEIGHTS_PART, b""))[: -len(b"\r\n--xyz--\r\n")]
        while True:
            sent += MIB
            yield bytes(MIB)

    services = bench.services
    upload = Upload(bench.tenant, Actor("key:test"), "a")

    async def take() -> None:
        await services.intake.take(upload, Body("xyz", endless()))

    with allowing(bench, num_bytes=5 * MIB):
        with bench.client.portal() as portal, pytest.raises(Conflict) as refused:
            portal.call(take)
        assert refused.value.code == "adapter_storage_full"
    assert sent <= 6 * MIB
    assert await taken(db, bench.tenant) == 0


async def test_uploads_that_became_a_version_count_once(
    bench: Bench, db: Database, files: dict[str, bytes]
) -> None:
    ids = [bench.sent(name, files[name]) for name in (CONFIG_PART, WEIGHTS_PART)]
    assert await taken(db, bench.tenant) == sum(len(files[name]) for name in (CONFIG_PART, WEIGHTS_PART))
    made = bench.version("a", uploads=ids)
    assert made.status_code == STORED, made.text
    assert await taken(db, bench.tenant) == made.json()["bytes"]
    assert not any(bench.services.uploads.files.has(UUID(each)) for each in ids)
    assert bench.request("DELETE", "/v1/adapters/a").status_code == 200
    assert await taken(db, bench.tenant) == made.json()["bytes"]  # it can be restored still
    purged = bench.request("POST", "/v1/adapters/a/purge", json={"confirm": "a"})
    assert purged.status_code == 200, purged.text
    assert await taken(db, bench.tenant) == 0


async def test_room_of_a_killed_worker_comes_free_with_its_directory(
    bench: Bench, db: Database, tenant: TenantId
) -> None:
    """Nobody locks the directory any more, so the next sweep takes both."""
    intake = bench.services.intake
    left = bench.home / "uploads" / "upload-left"
    left.mkdir()
    room = Room(db, Allowance())
    held = room.hold(tenant, left.name)
    hold = await held.__aenter__()
    await hold.reach(1000)
    assert await taken(db, tenant) == 1000
    with bench.client.portal() as portal:
        assert portal.call(intake.sweep) == 1
    assert await taken(db, tenant) == 0
    assert not left.exists()
    await held.__aexit__(None, None, None)
