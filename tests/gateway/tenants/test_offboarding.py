"""A tenant that leaves: suspended at once, back again within its grace, purged after it, with a proof."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from deploy.local.services import DatabaseUrls
from gateway.audit.service import AuditLog
from gateway.catalog.repository import Line
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.models import Base, Lifecycle, Offboarding, TenantStatus
from gateway.principal import TenantId
from gateway.redis import TenantKeys
from gateway.tenants.holdings import KEPT_TABLES, NAMED_OTHERWISE, PURGED_TABLES
from gateway.tenants.purge_parts import Inventory, Part
from gateway.tenants.purge_repository import purged_tables
from gateway.tenants.purging import proof_digest, pseudonym
from gateway.tenants.schemas import OffboardingIn, TenantPatch
from tests.gateway.tenants.conftest import OPERATOR, House

ROOT = Path(__file__).resolve().parents[3]


def test_every_table_of_tenants_is_purged_or_kept_for_a_reason() -> None:
    names = {"tenant_id", "tenant", "owner_id", "owner"}
    with_tenant = {table.name for table in Base.metadata.sorted_tables if names & set(table.c.keys())}
    assert not with_tenant - PURGED_TABLES - set(KEPT_TABLES)
    assert not PURGED_TABLES & set(KEPT_TABLES)
    assert set(KEPT_TABLES) <= with_tenant


async def test_the_purge_may_delete_what_it_is_to_delete(db: Database) -> None:
    async with db.system_reader() as session:
        tables = [table.name for table in purged_tables()]
        for table in (*tables, "admins", "admin_tokens"):
            may = text("SELECT has_table_privilege(:table, 'DELETE')")
            assert await session.scalar(may, {"table": table}), f"GRANT DELETE ON {table} TO motet_system"


async def test_leaving_is_confirmed_suspends_and_can_be_undone(house: House, tenant: TenantId) -> None:
    name = await house.name_of(tenant)
    for wrong in ("", name.upper(), f"{name} "):
        with pytest.raises(BadRequest, match="name"):
            await house.offboardings.begin(OPERATOR, tenant, OffboardingIn(confirm=wrong))
    begun = await house.offboardings.begin(OPERATOR, tenant, OffboardingIn(confirm=name, grace_h=1))
    row = await house.row(tenant)
    assert (row.status, row.lifecycle, row.epoch) == (TenantStatus.SUSPENDED, Lifecycle.OFFBOARDING, 2)
    assert int(await house.redis.get(TenantKeys(tenant).epoch) or 0) == 2
    for change in (
        house.tenants.change(OPERATOR, tenant, TenantPatch(status=TenantStatus.ACTIVE)),
        house.tenants.resume(OPERATOR, tenant),
        house.offboardings.begin(OPERATOR, tenant, OffboardingIn(confirm=name)),
    ):
        with pytest.raises(Conflict) as refused:
            await change
        assert refused.value.code == "tenant_offboarding"
    assert await house.run() == 0  # the grace is not over
    back = await house.offboardings.undo(OPERATOR, tenant)
    assert (back.status, back.lifecycle) == (TenantStatus.ACTIVE, Lifecycle.ACTIVE)
    with pytest.raises(NotFound):
        await house.offboardings.undo(OPERATOR, tenant)
    last, _ = await house.offboardings.last(tenant)
    assert (last.id, last.state, last.ended_by) == (begun.id, "undone", OPERATOR.name)


async def test_undoing_gives_back_what_was_a_suspended_tenant_too(house: House, tenant: TenantId) -> None:
    await house.tenants.suspend(OPERATOR, tenant, "unpaid")
    await house.offboardings.begin(OPERATOR, tenant, OffboardingIn(confirm=await house.name_of(tenant)))
    back = await house.offboardings.undo(OPERATOR, tenant)
    assert (back.status, back.suspended_for) == (TenantStatus.SUSPENDED, "unpaid")
    assert (await house.tenants.resume(OPERATOR, tenant)).suspended_for is None


async def rows_left(db: Database, tenant: TenantId) -> dict[str, int]:
    left = {}
    async with db.system_reader() as session:
        for table in sorted(each.name for each in purged_tables()):
            whose = NAMED_OTHERWISE.get(table, "tenant_id")
            query = text(f"SELECT count(*) FROM {table} WHERE {whose} = :tenant")
            left[table] = int(await session.scalar(query, {"tenant": tenant}) or 0)
    return left


async def assert_gone(house: House, line: Line, expected: dict[str, Inventory]) -> None:
    tenant = line.tenant
    assert set((await rows_left(house.db, tenant)).values()) == {0}
    assert [key async for key in house.redis.scan_iter(match=f"{{{tenant}}}*")] == []
    assert list(house.store.list(f"tenants/{tenant}")) == []
    assert all(not replica.held for replica in house.replicas)
    done = await house.offboarding(tenant)
    assert done.state == "purged"
    assert done.proof is not None
    told = {each["kind"]: each for each in done.proof["deleted"]}
    assert {kind: (each["found"], each["digest"]) for kind, each in told.items()} == {
        kind: (each.count, each.digest) for kind, each in expected.items()
    }
    assert {each["remaining"] for each in told.values()} == {0}
    assert done.proof["digest"] == proof_digest(done.proof)
    row = await house.row(tenant)
    assert (row.name, row.status, row.lifecycle) == (pseudonym(tenant), "suspended", "purged")
    log = AuditLog(house.db)
    assert (await log.verify(tenant)).broken is None


async def inventories(house: House, tenant: TenantId) -> dict[str, Inventory]:
    return {part.kind: await part.found(tenant) for part in house.parts()}


async def test_the_purge_takes_all_of_one_tenant_and_nothing_of_another(
    house: House, line: Line, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    other = Line(await new_tenant(), line.base_id)
    await house.furnish(other)
    before = await inventories(house, other.tenant)
    for replica in house.replicas:
        replica.held.clear()
    artefacts = await house.furnish(line)
    await house.leave(line.tenant)
    expected = await inventories(house, line.tenant)
    assert {kind: each.count for kind, each in expected.items() if each.count} == {
        "accounts": 1,
        "replica_caches": 3,
        "stored_objects": 4,
        "table:aliases": 1,
        "table:adapter_versions": 3,
        "table:adapters": 1,
        "table:api_keys": 2,
        "table:billing_exports": 1,
        "table:members": 1,
        "table:pool_rules": 1,
        "redis_keys": 4,
    }
    assert await house.run() == 1
    await assert_gone(house, line, expected)
    for replica in house.replicas:
        assert sorted(set(replica.purged)) == sorted((each, str(line.tenant)) for each in artefacts)
    assert await inventories(house, other.tenant) == before
    assert await house.run() == 0
    with pytest.raises(Conflict):
        await house.offboardings.begin(OPERATOR, line.tenant, OffboardingIn(confirm=pseudonym(line.tenant)))
    with pytest.raises(NotFound):
        await house.offboardings.undo(OPERATOR, line.tenant)


async def test_a_replica_that_is_away_or_slow_to_forget_holds_up_the_end_only(
    house: House, line: Line
) -> None:
    await house.furnish(line)
    await house.leave(line.tenant)
    expected = await inventories(house, line.tenant)
    house.replicas[1].away = True
    assert await house.run() == 0
    with pytest.raises(Conflict) as refused:
        await house.offboardings.undo(OPERATOR, line.tenant)
    assert refused.value.code == "tenant_purging"
    house.replicas[1].away, house.replicas[1].deaf = False, True
    assert await house.run() == 0
    assert (await house.offboarding(line.tenant)).proof is None
    house.replicas[1].deaf = False
    assert await house.run() == 1
    await assert_gone(house, line, expected)


class Died(BaseException):
    """As sudden as a kill: nothing in the code catches it."""


@dataclass
class Deaths:
    """Dies at the n-th moment, counted over all parts."""

    left: int

    def come(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died


class Mortal:
    """A part that can die before and after all that it does."""

    def __init__(self, part: Part, deaths: Deaths) -> None:
        self._part = part
        self._deaths = deaths
        self.kind = part.kind

    async def found(self, tenant: TenantId) -> Inventory:
        self._deaths.come()
        found = await self._part.found(tenant)
        self._deaths.come()
        return found

    async def delete(self, tenant: TenantId) -> None:
        self._deaths.come()
        await self._part.delete(tenant)
        self._deaths.come()


async def test_wherever_it_dies_the_next_comes_to_the_same_end(
    house: House, line: Line, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    """Every moment between two effects, each with a tenant of its own, dying twice in a row."""
    moment = 1
    while True:
        its = Line(await new_tenant(), line.base_id)
        await house.furnish(its)
        await house.leave(its.tenant)
        expected = await inventories(house, its.tenant)
        died = 0
        for _ in range(2):
            deaths = Deaths(moment)
            mortal: Sequence[Part] = [Mortal(part, deaths) for part in house.parts()]
            try:
                await house.run(mortal)
            except Died:
                died += 1
        await house.run()
        await assert_gone(house, its, expected)
        if not died:
            return
        moment += 7  # of some eighty: a few seconds


KILLED = """
import asyncio, os, signal, sys
from redis.asyncio import Redis
from adapters.store import open_store
from gateway.db import Database
from gateway.retirement.purge import Purges
from gateway.tenants.purge_parts import parts_of
from gateway.tenants.purging import Purger

app, system, redis_url, store_url = sys.argv[1:]

async def main():
    db, redis, store = Database(app, system), Redis.from_url(redis_url), open_store(store_url)
    real, deleted = store.delete, []
    def delete(path):
        real(path)
        deleted.append(path)
        if len(deleted) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    store.delete = delete
    await Purger(db, parts_of(db, redis, store, Purges(db, store, dict, '-'))).run_once()

asyncio.run(main())
"""


async def test_kill_9_within_the_deletion_and_again(
    house: House, line: Line, database: DatabaseUrls, redis_url: str
) -> None:
    house.replicas.clear()
    await house.furnish(line)
    await house.leave(line.tenant)
    expected = await inventories(house, line.tenant)
    store = f"file://{house.root}/store"
    given = [KILLED, database.app, database.system, redis_url, store]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", *given, env=environment, cwd=ROOT)
    assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL
    assert 1 <= len(list(house.store.list(f"tenants/{line.tenant}"))) <= 2  # of four; some go side by side
    assert (await house.offboarding(line.tenant)).state == "purging"
    assert await house.run() == 1
    await assert_gone(house, line, expected)


async def test_what_comes_in_late_goes_too_and_a_day_later_it_is_looked_again(
    house: House, line: Line
) -> None:
    await house.furnish(line)
    await house.leave(line.tenant)
    assert await house.run() == 1
    key = TenantKeys(line.tenant).key("epoch")
    await house.redis.set(key, 9)
    assert await house.run() == 0  # not yet
    async with house.db.system_session() as session:
        await session.execute(
            update(Offboarding)
            .where(Offboarding.tenant_id == line.tenant)
            .values(ended_at=text("now() - interval '25 hours'"))
        )
    await house.run()
    seen = await house.offboarding(line.tenant)
    assert seen.leftovers == {"redis_keys": 1}
    assert seen.looked_again_at is not None
    assert await house.redis.exists(key) == 0


async def test_over_http_with_what_a_leaving_tenant_may_still_do(
    client: Any, operator: Any, house: House
) -> None:
    made = client.post("/api/v1/tenants", json={"name": "leaver"}, headers=operator.headers).json()
    url = f"/api/v1/tenants/{made['id']}"
    key = client.post(f"{url}/keys", json={"name": "k"}, headers=operator.headers).json()
    mine = {"authorization": f"Bearer {key['secret']}"}
    assert client.get("/v1/models", headers=mine).status_code == 200
    assert client.get(f"{url}/offboarding", headers=operator.headers).status_code == 404
    wrong = client.post(f"{url}/offboarding", json={"confirm": "x"}, headers=operator.headers)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "confirmation_mismatch")
    begun = client.post(f"{url}/offboarding", json={"confirm": "leaver"}, headers=operator.headers)
    assert (begun.status_code, begun.json()["state"]) == (202, "waiting")
    answer = client.get("/v1/models", headers=mine)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_suspended")
    refused = client.post(f"{url}/keys", json={"name": "more"}, headers=operator.headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "tenant_offboarding")
    assert client.get(f"{url}/keys", headers=operator.headers).status_code == 200
    assert client.delete(f"{url}/offboarding", headers=operator.headers).json()["lifecycle"] == "active"
    client.post(f"{url}/offboarding", json={"confirm": "leaver"}, headers=operator.headers)
    await house.let_grace_pass(TenantId(made["id"]))
    assert await house.run() >= 1
    told = client.get(f"{url}/offboarding", headers=operator.headers).json()
    assert (told["state"], told["proof"]["tenant"]) == ("purged", made["id"])
    assert client.get(url, headers=operator.headers).json()["lifecycle"] == "purged"
    again = client.post("/api/v1/tenants", json={"name": "leaver"}, headers=operator.headers)
    assert again.status_code == 201
