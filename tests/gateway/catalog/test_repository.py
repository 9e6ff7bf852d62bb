"""SQL of the catalog against a real PostgreSQL, as the role that row-level security binds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

from gateway.catalog import repository, stored
from gateway.catalog.names import LIVE, parse_model
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.principal import TenantId


def new_version(digest: str | None = None) -> NewVersion:
    digest = digest or uuid4().hex * 2
    return NewVersion(artefact=digest, content_digest=digest, manifest={}, num_bytes=10)


async def add(db: Database, line: Line, name: str, digest: str | None = None) -> int:
    async with db.tenant_session(line.tenant) as session:
        adapter = await repository.lock_or_add_adapter(session, line, name)
        version = await repository.add_version(session, adapter, new_version(digest))
        await repository.move_alias(session, adapter, LIVE, version.number)
        return version.number


async def retire(db: Database, line: Line, name: str, number: int | None) -> list[str]:
    async with db.tenant_session(line.tenant) as session:
        adapter = await repository.lock_adapter(session, line, name)
        assert adapter is not None
        return await repository.retire_versions(session, adapter, number)


async def served(db: Database, line: Line, model: str) -> int | None:
    name = parse_model(model)
    assert name is not None
    async with db.tenant_reader(line.tenant) as session:
        row = await repository.find_served(session, line, name)
    return row.number if row is not None else None


async def test_a_bare_name_follows_the_live_alias(db: Database, line: Line) -> None:
    assert await served(db, line, "pirate") is None
    assert [await add(db, line, "pirate"), await add(db, line, "pirate")] == [1, 2]
    assert await served(db, line, "pirate") == 2
    assert await served(db, line, "pirate@1") == 1
    assert await served(db, line, "pirate@3") is None
    assert await served(db, line, "pirate@canary") is None


async def test_concurrent_additions_get_consecutive_numbers(db: Database, line: Line) -> None:
    numbers = await asyncio.gather(*(add(db, line, "busy") for _ in range(6)))
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
    assert await served(db, line, "busy") == max(numbers)


async def test_a_retired_version_is_gone_and_its_number_is_not_given_out_again(
    db: Database, line: Line
) -> None:
    digest = uuid4().hex * 2
    await add(db, line, "a")
    await add(db, line, "a", digest)
    assert await retire(db, line, "a", 2) == [digest]
    assert await served(db, line, "a@2") is None
    assert await served(db, line, "a") is None  # `live` pointed there, and is not moved to what nobody chose
    assert await served(db, line, "a@1") == 1
    async with db.tenant_reader(line.tenant) as session:
        assert not await stored.is_referenced(session, line.tenant, digest)
    assert await add(db, line, "a") == 3


async def test_an_adapter_without_versions_is_not_listed(db: Database, line: Line) -> None:
    for name in ("c", "a", "b"):
        await add(db, line, name)
    await retire(db, line, "b", None)
    async with db.tenant_reader(line.tenant) as session:
        first = await repository.list_adapters(session, line, after="", limit=1)
        rest = await repository.list_adapters(session, line, after="a", limit=10)
        live = await repository.list_served(session, line, 10)
        assert await repository.find_adapter(session, line, "b") is None
    assert [row.adapter.name for row in first] == ["a"]
    assert [(row.adapter.name, row.aliases, row.latest.number) for row in rest] == [("c", {LIVE: 1}, 1)]
    assert [row.name for row in live] == ["a", "c"]


async def test_versions_are_paged_newest_first(db: Database, line: Line) -> None:
    for _ in range(3):
        await add(db, line, "a")
    async with db.tenant_reader(line.tenant) as session:
        found = await repository.find_adapter(session, line, "a")
        assert found is not None
        page = await repository.list_versions(session, found.adapter, None, 2)
        rest = await repository.list_versions(session, found.adapter, 2, 2)
    assert [v.number for v in page] == [3, 2]
    assert [v.number for v in rest] == [1]


async def test_another_tenant_sees_nothing(
    db: Database, line: Line, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    await add(db, line, "mine")
    other = Line(await new_tenant(), line.base_id)
    assert await served(db, other, "mine") is None
    async with db.tenant_reader(other.tenant) as session:  # row-level security, whatever the query says
        assert await repository.list_adapters(session, line, after="", limit=10) == []
        assert await repository.find_adapter(session, line, "mine") is None
