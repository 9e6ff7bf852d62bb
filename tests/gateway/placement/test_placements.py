"""Placements over a real PostgreSQL: what a tenant may ask for, and what control makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from litestar.testing import TestClient

from gateway.catalog import repository as catalog
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.ids import uuid7
from gateway.placement import repository
from gateway.placement.moves import Moves
from gateway.placement.quota import Quota
from gateway.placement.reconciler import Placer
from gateway.principal import TenantId
from gateway.replicas.driver import Driver, ReplicaView, UpstreamFailed
from gateway.replicas.placement import rank
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica
from gateway.services import Services
from gateway.usage.repository import insert_events
from tests.gateway.conftest import Operator
from tests.gateway.usage.test_journal import make_event

Client = TestClient[Any]
MIB = 2**20


async def add_adapter(db: Database, line: Line, name: str, num_bytes: int = 10 * MIB) -> str:
    """Its artefact."""
    digest = uuid4().hex * 2
    manifest = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}
    async with db.tenant_session(line.tenant) as session:
        row = await catalog.lock_or_add_adapter(session, line, name)
        version = await catalog.add_version(session, row, NewVersion(digest, digest, manifest, num_bytes))
        await catalog.move_alias(session, row, LIVE, version.number)
    return digest


@dataclass
class Bench:
    """A tenant with adapters, as an operator reaches it."""

    client: Client
    operator: Operator
    line: Line

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        url = f"/api/v1/tenants/{self.line.tenant}{path}"
        answer = self.client.request(method, url, json=body, headers=self.operator.headers)
        return answer.status_code, answer.json()


@pytest.fixture
async def bench(client: Client, operator: Operator, db: Database, tenant: TenantId) -> Bench:
    services: Services = client.app.state.services
    line = Line(tenant, services.catalog.base_id)
    for name in ("one", "two", "three"):
        await add_adapter(db, line, name)
    return Bench(client, operator, line)


async def test_a_placement_is_set_shown_changed_and_removed(bench: Bench, db: Database) -> None:
    path = "/adapters/one/placement"
    status, shown = bench.ask("GET", path)
    assert (status, shown["state"], shown["replicas"], shown["serves"]) == (200, "unplaced", 0, 1)
    status, shown = bench.ask("PUT", path, {"replicas": 2, "tier": "device"})
    assert (status, shown["state"]) == (200, "waiting")
    assert (shown["replicas"], shown["pinned"], shown["tier"], shown["version"]) == (2, True, "device", None)
    await add_adapter(db, bench.line, "one")
    assert bench.ask("GET", path)[1]["serves"] == 2, "it goes with `live`"
    assert bench.ask("PUT", path, {"version": 1, "pinned": False})[1]["serves"] == 1
    assert bench.ask("PUT", path, {"version": 9})[0] == 404
    assert bench.ask("PUT", path, {"replicas": 0})[0] == 400
    assert bench.ask("PUT", "/adapters/none/placement", {})[0] == 404
    assert bench.ask("DELETE", path)[0] == 200
    assert bench.ask("DELETE", path)[1]["code"] == "placement_not_found"
    events = bench.ask("GET", "/audit")[1]["data"]
    actions = [event["action"] for event in events if event["action"].startswith("placement")]
    assert actions == ["placement.delete", "placement.update", "placement.update"]


async def test_each_part_of_live_is_placed_as_far_as_there_is_room(bench: Bench, db: Database) -> None:
    """A canary's version at 5 % too; what most goes to comes first, of all adapters."""
    line = bench.line
    canary = await add_adapter(db, line, "one")
    assert bench.ask("PUT", "/adapters/one/aliases/live", {"weights": {"1": 95, "2": 5}})[0] == 200
    for name in ("one", "two"):
        assert bench.ask("PUT", f"/adapters/{name}/placement", {"replicas": 2, "tier": "device"})[0] == 200
    async with db.tenant_reader(line.tenant) as session:
        placed = await repository.placed_by(session, line)
    assert [(each.adapter, each.version, each.is_part) for each in placed] == [
        ("one", 1, False),
        ("two", 1, False),
        ("one", 2, True),
    ]
    assert [each.version for each in Quota(4, 100 * MIB).within(placed)] == [1, 1]
    assert len(Quota(6, 100 * MIB).within(placed)) == 3
    assert bench.ask("GET", "/adapters/one/placement")[1]["serves"] == 1
    quota = f"/api/v1/tenants/{line.tenant}/placement-quota"
    small = {"slots": 4, "bytes": 100 * MIB}
    assert bench.client.put(quota, json=small, headers=bench.operator.headers).status_code == 200
    assert bench.ask("PUT", "/adapters/one/placement", {"replicas": 2, "tier": "device"})[0] == 200
    assert bench.ask("GET", "/adapters/one/placement")[1]["state"] == "waiting", "its part is no reason"
    listed = bench.client.get("/api/v1/placement?limit=200", headers=bench.operator.headers).json()["data"]
    wanted = {each["artefact"]: each["wanted"] for each in listed}
    assert wanted[canary]["within_quota"] is False
    assert bench.ask("PUT", "/adapters/one/aliases/live", {"version": 1})[0] == 200
    async with db.tenant_reader(line.tenant) as session:
        assert len(await repository.placed_by(session, line)) == 2
    assert bench.ask("PUT", "/adapters/one/aliases/live", {"weights": {"1": 95, "2": 5}})[0] == 200
    assert bench.ask("PUT", "/adapters/one/placement", {"version": 2})[0] == 200
    async with db.tenant_reader(line.tenant) as session:
        named = [(each.adapter, each.version) for each in await repository.placed_by(session, line)]
    assert sorted(named) == [("one", 2), ("two", 1)], "one that names its version has no other"


async def test_nobody_places_more_than_the_quota_and_operators_set_it(bench: Bench) -> None:
    status, quota = bench.ask("GET", "/placement-quota")
    assert (status, quota["is_default"], quota["wanted_slots"]) == (200, True, 0)
    status, quota = bench.ask("PUT", "/placement-quota", {"slots": 2, "bytes": 45 * MIB})
    assert (status, quota["slots"], quota["is_default"]) == (200, 2, False)
    assert bench.ask("PUT", "/adapters/one/placement", {"replicas": 2, "tier": "device"})[0] == 200
    status, problem = bench.ask("PUT", "/adapters/two/placement", {"tier": "device"})
    assert (status, problem["code"]) == (409, "placement_quota_exceeded")
    assert bench.ask("PUT", "/adapters/two/placement", {"replicas": 3})[0] == 409
    assert bench.ask("PUT", "/adapters/two/placement", {"replicas": 2})[0] == 200
    assert bench.ask("GET", "/placement-quota")[1]["wanted_bytes"] == 40 * MIB
    bench.ask("PUT", "/placement-quota", {"slots": 0, "bytes": 45 * MIB})
    states = [bench.ask("GET", f"/adapters/{name}/placement")[1]["state"] for name in ("one", "two")]
    assert states == ["over_quota", "waiting"]
    listed = walk(bench, "/api/v1/placement")
    mine = {
        row["adapter"]: row["wanted"]["within_quota"]
        for row in listed
        if row["tenant"] == str(bench.line.tenant)
    }
    assert mine == {"one": False, "two": True}


async def test_a_placement_that_somebody_else_changed_is_not_overwritten(bench: Bench) -> None:
    url = f"/api/v1/tenants/{bench.line.tenant}/adapters/one/placement"

    def ask(method: str, tag: str | None = None, **body: Any) -> Any:
        headers = bench.operator.headers | ({} if tag is None else {"if-match": tag})
        return bench.client.request(method, url, json=body or None, headers=headers)

    unplaced = ask("GET")
    assert unplaced.json()["can"] == ["place"]
    first = ask("PUT", unplaced.headers["etag"], replicas=2)
    assert (first.status_code, first.json()["can"]) == (200, ["place", "unplace"])
    ask("PUT", tier="device")
    late = ask("PUT", first.headers["etag"], replicas=3)
    assert (late.status_code, late.json()["current"]["tier"]) == (412, "device")
    assert ask("DELETE", first.headers["etag"]).status_code == 412
    assert ask("DELETE", late.headers["etag"]).status_code == 200


async def test_the_list_is_filtered_by_the_server_and_sorted_by_adapter(bench: Bench) -> None:
    for name in ("two", "one", "three"):
        bench.ask("PUT", f"/adapters/{name}/placement", {})
    of = f"tenant={bench.line.tenant}"
    assert [row["adapter"] for row in walk(bench, f"/api/v1/placement?{of}")] == ["one", "three", "two"]
    assert [row["adapter"] for row in walk(bench, f"/api/v1/placement?{of}&name_prefix=t")] == [
        "three",
        "two",
    ]
    assert walk(bench, f"/api/v1/placement?{of}&wanted=false") == []
    assert walk(bench, f"/api/v1/placement?{of}&replica=http://nobody") == []
    assert walk(bench, f"/api/v1/placement?{of}&tier=device") == []
    assert walk(bench, f"/api/v1/placement?{of}")[0]["can"] == ["place", "unplace"]


def walk(bench: Bench, url: str) -> list[dict[str, Any]]:
    """All of its pages."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        given = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        merged = httpx.URL(url).copy_merge_params(given)
        page = bench.client.get(str(merged), headers=bench.operator.headers).json()
        found += page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@dataclass
class Standing:
    """A replica's driver that holds at once what it is asked for, and remembers how it was asked."""

    held: set[str] = field(default_factory=set)
    asked: list[tuple[str, str, bool]] = field(default_factory=list)  # artefact, keep or load, on the device
    sequence: int = 10
    away: bool = False

    async def ready(self) -> bool:
        return True

    async def view(self) -> ReplicaView:
        self.sequence += 1
        held = frozenset(self.held)
        return ReplicaView(device=held, host=held, base_id="b", sequence=self.sequence)

    async def prefetch(self, artefact: str, owner: str) -> None:
        self._take(artefact, "load", False)

    async def keep(self, artefact: str, owner: str, keep_ms: int, *, on_device: bool) -> None:
        assert keep_ms == 60_000
        self._take(artefact, "keep", on_device)

    def restart(self) -> None:
        self.held, self.asked, self.sequence = set(), [], 0

    def _take(self, artefact: str, kind: str, on_device: bool) -> None:
        if self.away:
            raise UpstreamFailed("away")
        self.asked.append((artefact, kind, on_device))
        self.held.add(artefact)


def fleet_of(number: int) -> tuple[Registry, list[Standing]]:
    drivers = [Standing() for _ in range(number)]
    replicas = [Replica(f"http://r{n}", cast(Driver, driver)) for n, driver in enumerate(drivers)]
    return Registry(replicas), drivers


async def asked_for(db: Database, line: Line, artefact: str, times: int, ago_s: float = 0.0) -> None:
    """By requests that are in the ledger."""
    ended = datetime.now(UTC) - timedelta(seconds=ago_s)
    async with db.system_session() as session:
        await insert_events(
            session,
            [
                make_event(
                    request_id=uuid7(),
                    tenant_id=line.tenant,
                    owner_id=line.tenant,
                    base_id=line.base_id,
                    artefact=artefact,
                    adapter_name="x",
                    ended_at=ended,
                )
                for _ in range(times)
            ],
        )


async def test_control_applies_what_is_placed_and_no_more_than_the_quota(db: Database, line: Line) -> None:
    artefacts = [await add_adapter(db, line, name) for name in ("first", "second", "third")]
    for name, tier in (("first", "device"), ("second", "host"), ("third", "host")):
        async with db.tenant_session(line.tenant) as session:  # a moment for each: the oldest come first
            adapter = await catalog.lock_or_add_adapter(session, line, name)
            values = {"replicas": 2, "pinned": True, "tier": tier, "version": None}
            await repository.put(session, adapter, values)
    registry, drivers = fleet_of(3)
    placer = Placer(db, registry, line.base_id, Quota(2, 45 * MIB))
    assert await placer.run_once() == 4
    for artefact, on_device in ((artefacts[0], True), (artefacts[1], False)):
        homes = [replica.url for replica in rank(artefact, registry.all)[:2]]
        holding = [f"http://r{n}" for n, driver in enumerate(drivers) if artefact in driver.held]
        assert sorted(homes) == holding
        kinds = {asked for driver in drivers for asked in driver.asked if asked[0] == artefact}
        assert kinds == {(artefact, "keep", on_device)}
    assert not any(artefacts[2] in driver.held for driver in drivers), "beyond the quota"
    assert await placer.run_once() == 0
    drivers[0].away = drivers[1].away = drivers[2].away = True
    for driver in drivers:
        driver.restart()
    assert await placer.run_once() == 0
    for driver in drivers:
        driver.away = False
    assert await placer.run_once() == 4, "asked again as soon as they answer"


async def test_a_replica_that_restarted_is_warm_again_without_anyone_asking(db: Database, line: Line) -> None:
    hot, old, gone = [await add_adapter(db, line, name) for name in ("hot", "old", "gone")]
    await asked_for(db, line, old, 3, ago_s=3_600)
    await asked_for(db, line, gone, 9)
    await asked_for(db, line, hot, 2)
    async with db.tenant_session(line.tenant) as session:
        adapter = await catalog.lock_or_add_adapter(session, line, "gone")
        await catalog.retire_versions(session, adapter, None)
    registry, (driver,) = fleet_of(1)
    placer = Placer(db, registry, line.base_id, Quota(0, 0))
    assert await placer.run_once() == 2, "the whole platform starts: the ledger remembers"
    assert [artefact for artefact, _, _ in driver.asked] == [hot, old], "hottest first, retired ones never"
    assert await placer.run_once() == 0
    driver.restart()
    assert await placer.run_once() == 2
    assert driver.held == {hot, old}
    driver.held -= {hot}  # pushed out by others: that is the replica's to decide
    assert await placer.run_once() == 0


async def test_moves_between_tiers_are_told_as_they_happen() -> None:
    registry, (driver,) = fleet_of(1)
    moves = Moves(registry)
    driver.held = {"a", "b"}
    await registry.poll_once()
    assert moves.latest(10) == [], "what it held when it was first heard of came earlier"
    driver.held = {"b", "c"}
    await registry.poll_once()
    told = [(move.artefact, move.before, move.after) for move in moves.latest(10)]
    assert told == [("c", "none", "device"), ("a", "device", "none")]
    assert moves.latest(1)[0].artefact == "c"
    assert moves.latest(10, since=datetime.now(UTC) + timedelta(seconds=1)) == []
