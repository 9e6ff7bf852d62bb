"""Retired, restored, purged: over a real database and store, with replicas that can be held or away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.catalog.names import LIVE
from gateway.errors import BadRequest, Conflict, ModelNotFound, NotFound
from gateway.principal import TenantId
from tests.gateway.catalog.test_intake import ACTOR
from tests.gateway.retirement.conftest import Ward


async def test_a_retired_version_comes_back_as_it_was_and_its_aliases_when_asked(
    ward: Ward, tenant: TenantId, small: Path, other: Path
) -> None:
    await ward.room.upload(tenant, "pirate", small)
    second = (await ward.room.upload(tenant, "pirate", other)).version
    before = await ward.stored_by(tenant)
    lifecycle, retirement = ward.room.lifecycle, ward.retirement
    with pytest.raises(Conflict) as refused:
        await retirement.restore(await ward.who(tenant), ACTOR, "pirate", 2, aliases=True)
    assert refused.value.code == "adapter_not_retired"

    await lifecycle.retire(await ward.who(tenant), ACTOR, "pirate", 2)
    assert await ward.stored_by(tenant) == before  # until it is purged
    who = await ward.who(tenant)
    listed = (await lifecycle.list_versions(who, "pirate", None, 10, "retired")).versions
    assert [version.number for version in listed] == [2]
    assert listed[0].purges_at is not None
    assert timedelta(days=6.9) < listed[0].purges_at - datetime.now(UTC) < timedelta(days=7.1)
    assert [v.number for v in (await lifecycle.list_versions(who, "pirate", None, 10)).versions] == [1]
    with pytest.raises(ModelNotFound):
        await ward.room.catalog.resolve(who, "pirate@2")

    back = await retirement.restore(who, ACTOR, "pirate", 2, aliases=False)
    assert ([v.number for v in back.versions], back.aliases, back.aliases_left) == ([2], {}, {LIVE: 2})
    who = await ward.who(tenant)
    resolved = await ward.room.catalog.resolve(who, "pirate@2")
    assert resolved.adapter is not None
    assert resolved.adapter.artefact == second.artefact
    with pytest.raises(ModelNotFound):  # `live` went with it, and nobody moved it silently
        await ward.room.catalog.resolve(who, "pirate")

    # all of it, `live` too, which pointed to version 3
    assert (await ward.room.upload(tenant, "pirate", small)).created is False
    await lifecycle.retire(await ward.who(tenant), ACTOR, "pirate", None)
    assert [row.latest.number for row in await lifecycle.list_adapters(who, "", 10, retired=True)] == [2]
    assert await lifecycle.list_adapters(who, "", 10) == []
    whole = await retirement.restore(await ward.who(tenant), ACTOR, "pirate", None, aliases=True)
    assert sorted(version.number for version in whole.versions) == [1, 2]
    assert (whole.aliases, whole.aliases_left, whole.gone) == ({}, {}, [])


async def test_aliases_come_back_only_where_they_are_free(
    ward: Ward, tenant: TenantId, small: Path, other: Path
) -> None:
    await ward.room.upload(tenant, "pirate", small)
    await ward.room.lifecycle.retire(await ward.who(tenant), ACTOR, "pirate", 1)
    back = await ward.retirement.restore(await ward.who(tenant), ACTOR, "pirate", 1, aliases=True)
    assert (back.aliases, back.aliases_left) == ({LIVE: 1}, {})
    await ward.room.lifecycle.retire(await ward.who(tenant), ACTOR, "pirate", 1)
    await ward.room.upload(tenant, "pirate", other)  # `live` points to it now
    back = await ward.retirement.restore(await ward.who(tenant), ACTOR, "pirate", 1, aliases=True)
    assert (back.aliases, back.aliases_left) == ({}, {LIVE: 1})


async def test_after_its_retention_control_removes_it_everywhere(
    ward: Ward, tenant: TenantId, small: Path
) -> None:
    artefact = (await ward.room.upload(tenant, "pirate", small)).version.artefact
    for replica in ward.replicas.values():
        replica.load(artefact)
    await ward.room.lifecycle.retire(await ward.who(tenant), ACTOR, "pirate", 1)
    await ward.job.run_once()
    assert len(ward.room.kept()) == 1
    await ward.let_retention_pass(tenant)
    await ward.job.run_once()
    assert ward.room.kept() == []
    assert [replica.holds for replica in ward.replicas.values()] == [set(), set()]
    assert await ward.stored_by(tenant) == (0, 0)
    with pytest.raises(Conflict) as refused:
        await ward.retirement.restore(await ward.who(tenant), ACTOR, "pirate", 1, aliases=False)
    assert refused.value.code == "adapter_purged"
    assert (await ward.room.upload(tenant, "pirate", small)).version.number == 2


async def test_a_purge_is_typed_waits_for_who_holds_it_and_can_be_asked_again(
    ward: Ward, tenant: TenantId, small: Path
) -> None:
    artefact = (await ward.room.upload(tenant, "pirate", small)).version.artefact
    one, two = ward.replicas.values()
    one.load(artefact)
    two.load(artefact)
    two.held.add(artefact)
    who = await ward.who(tenant)
    for wrong in ("", "pirate", "pirate@2", "PIRATE@1"):
        with pytest.raises(BadRequest):
            await ward.retirement.purge(who, ACTOR, "pirate", 1, wrong)
    with pytest.raises(NotFound):
        await ward.retirement.purge(who, ACTOR, "pirate", 2, "pirate@2")
    (found,) = await ward.retirement.purge(who, ACTOR, "pirate", 1, "pirate@1")
    assert found.state == "purging"
    assert sorted(row.state for row in found.replicas) == ["held", "purged"]
    assert (ward.room.kept(), one.holds, two.holds) == ([], set(), {artefact})
    with pytest.raises(ModelNotFound):
        await ward.room.catalog.resolve(await ward.who(tenant), "pirate@1")
    with pytest.raises(Conflict):
        await ward.retirement.restore(who, ACTOR, "pirate", 1, aliases=False)
    two.held.clear()
    (again,) = await ward.retirement.purge(who, ACTOR, "pirate", 1, "pirate@1")
    assert (again.state, two.holds) == ("purged", set())
    assert (await ward.retirement.purge_of(who, "pirate", None))[0].state == "purged"
    async with ward.db.system_reader() as session:
        query = text("SELECT action FROM audit_events WHERE tenant_id = :it ORDER BY id")
        actions = list(await session.scalars(query, {"it": tenant}))
    assert actions.count("adapter.purged") == 1
    assert "adapter.purge" in actions


async def test_content_that_another_version_has_stays_until_that_ends_too(
    ward: Ward, tenant: TenantId, small: Path, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    neighbour = await new_tenant()
    artefact = (await ward.room.upload(tenant, "one", small)).version.artefact
    await ward.room.upload(tenant, "two", small)
    await ward.room.upload(neighbour, "one", small)
    (found,) = await ward.retirement.purge(await ward.who(tenant), ACTOR, "one", 1, "one@1")
    assert (found.state, found.kept_for) == ("kept", ["two@1"])
    assert len(ward.room.kept()) == 2
    assert (await ward.room.catalog.resolve(await ward.who(tenant), "two")).adapter is not None
    (found,) = await ward.retirement.purge(await ward.who(tenant), ACTOR, "two", None, "two")
    assert found.state == "purged"
    assert [path for path in ward.room.kept() if artefact in path] == []
    assert len(ward.room.kept()) == 1  # the neighbour's own


async def test_what_is_uploaded_again_while_it_is_purged_stays(
    ward: Ward, tenant: TenantId, small: Path
) -> None:
    artefact = (await ward.room.upload(tenant, "pirate", small)).version.artefact
    for replica in ward.replicas.values():
        replica.held.add(artefact)
    await ward.retirement.purge(await ward.who(tenant), ACTOR, "pirate", 1, "pirate@1")
    assert (await ward.room.upload(tenant, "pirate", small)).version.number == 2
    for replica in ward.replicas.values():
        replica.held.clear()
        replica.load(artefact)
    await ward.job.run_once()
    assert len(ward.room.kept()) == 1
    assert all(replica.holds for replica in ward.replicas.values())
    assert await ward.states(tenant, artefact) == {}


async def test_a_replica_that_was_away_purges_before_it_serves(
    ward: Ward, tenant: TenantId, small: Path
) -> None:
    artefact = (await ward.room.upload(tenant, "pirate", small)).version.artefact
    url, replica = next(iter(ward.replicas.items()))
    replica.load(artefact)
    replica.away = True
    (found,) = await ward.retirement.purge(await ward.who(tenant), ACTOR, "pirate", 1, "pirate@1")
    assert found.state == "purging"
    assert await ward.owing() == set()  # once may be chance
    await ward.job.run_once()
    assert await ward.owing() == {url}  # by this the roster keeps requests from it
    await ward.remove(url)
    await ward.job.run_once()
    assert (await ward.states(tenant, artefact))[url] == "gone"
    (found,) = await ward.retirement.purge_of(await ward.who(tenant), "pirate", 1)
    assert found.state == "purged"
    assert await ward.owing() == {url}

    await ward.remove(url, removed=False)  # it is registered again, with its old disk
    replica.away = False
    await ward.job.run_once()
    assert (replica.holds, await ward.owing()) == (set(), set())
    assert (await ward.states(tenant, artefact))[url] == "purged"
