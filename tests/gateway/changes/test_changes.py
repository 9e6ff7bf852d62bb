"""The feed over a real PostgreSQL and Redis: who hears of what, once, and what bounds it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from gateway.admin_auth.sessions import SessionStore
from gateway.audit.service import SYSTEM, Change, record
from gateway.catalog.repository import Line
from gateway.changes.feed import Feed
from gateway.changes.fleet_tail import FleetTail
from gateway.changes.follower import MOST_WAITING, Audience, Follower
from gateway.changes.kinds import NOUNS, READ_BY, TOLD, heard_by, of_action
from gateway.changes.log_tail import LogTail, first_id_of
from gateway.changes.open_streams import OpenStreams, StreamBounds
from gateway.changes.schemas import Change as Told
from gateway.changes.service import Asked, Changes
from gateway.db import Database
from gateway.draining import Leaving
from gateway.errors import RateLimited, Unavailable
from gateway.ids import uuid7
from gateway.models import AuditEvent
from gateway.placement.moves import Moves
from gateway.principal import Role, TenantId
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica
from gateway.roles import OPERATORS, ROLES
from gateway.webhooks.outbox import publish
from tests.gateway.placement.test_placements import Standing, add_adapter

UNTOLD = {"upload"}  # what arrives of one is in no log, so whoever watches one asks now and then
SOURCES = Path(__file__).resolve().parents[3] / "gateway"
OPERATOR = Audience(Role.OPERATOR)
NewTenant = Callable[[], Awaitable[TenantId]]


def test_all_that_is_audited_has_a_kind_that_somebody_may_read() -> None:
    """A new noun of the audit log is told to nobody until it stands in the table."""
    code = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    nouns = set(re.findall(r"\b_?[cC]hange\(\s*f?\"([a-z_]+)\.", code))
    assert len(nouns) > 15
    assert nouns == set(NOUNS) | UNTOLD
    assert all(tuple(call) in ROLES for call in READ_BY.values())
    assert {noun.kind for noun in NOUNS.values()} | {kind for kind, _ in TOLD.values()} | {"move"} == set(
        READ_BY
    )


def test_an_artefact_is_named_as_no_adapter() -> None:
    for verb in ("purged", "lost", "found"):
        assert of_action(f"adapter.{verb}", "a" * 64) == ("adapter", [])
    assert of_action("adapter.ready", "triage@3") == ("adapter", ["triage"])


def test_a_role_hears_of_what_it_may_read() -> None:
    heard = {role: {kind for kind in READ_BY if heard_by(kind, role)} for role in Role}
    assert heard[Role.OPERATOR] == set(READ_BY)
    assert {"key", "adapter"} <= heard[Role.DEVELOPER]
    assert not heard[Role.VIEWER] & {"key", "member", "webhook", "billing"}
    assert heard[Role.BILLING] == {"tenant", "billing"}
    of_operators = {kind for kind, call in READ_BY.items() if ROLES[call.method, call.route] == OPERATORS}
    assert all(not heard[role] & of_operators for role in Role if role is not Role.OPERATOR)


@dataclass
class Bench:
    db: Database
    feed: Feed
    logs: LogTail
    leaving: Leaving
    sessions: SessionStore
    registry: Registry

    async def change(
        self, action: str, target: str, tenant: TenantId | None, age: timedelta | None = None
    ) -> None:
        """`age`: the transaction began so long before it commits."""
        async with self.db.system_session() as session:
            if age is None:
                record(session, SYSTEM, Change(action, target, tenant))
                return
            place = UUID(
                int=first_id_of(datetime.now(UTC) - age).int | 0x7 << 76 | uuid4().int & (1 << 76) - 1
            )
            row: dict[str, Any] = {
                "action": action,
                "target": target,
                "tenant_id": tenant,
                "actor": "system",
                "details": {},
            }
            session.add(AuditEvent(id=place, **row))


@pytest.fixture
async def bench(db: Database, redis: Redis, line: Line) -> Bench:
    replica = Replica("http://r0", Standing(), healthy=True)  # type: ignore[arg-type]  # a part of a driver
    registry = Registry([replica])
    logs, leaving, sessions = LogTail(db), Leaving(), SessionStore(redis)
    fleet = FleetTail(db, line.base_id, registry, Moves(registry))
    return Bench(db, Feed(logs, fleet, sessions, leaving), logs, leaving, sessions, registry)


def heard(follower: Follower) -> list[dict[str, Any]]:
    """What waits for it, changes only."""
    frames = follower.take().decode().split("\n\n")
    return [json.loads(frame.split("data: ")[1]) for frame in frames if frame.startswith("event: change")]


def about(follower: Follower, *tenants: TenantId) -> list[tuple[str, list[str]]]:
    """Of these tenants: other tests change things too."""
    mine = {str(tenant) for tenant in tenants}
    return [(each["kind"], each["objects"]) for each in heard(follower) if each["tenant"] in mine]


async def test_each_hears_of_its_own_once(bench: Bench, new_tenant: NewTenant) -> None:
    mine, other = await new_tenant(), await new_tenant()
    operator = bench.feed.join(OPERATOR, None)
    viewer = bench.feed.join(Audience(Role.VIEWER, mine), None)
    stranger = bench.feed.join(Audience(Role.TENANT_ADMIN, other), None)
    await bench.change("adapter.upload", "triage@3", mine)
    await bench.change("api_key.create", "ab12cd34", mine)
    await bench.change("replica.update", "http://r9", None)
    async with bench.db.tenant_session(mine) as session:
        told = {"adapter": "triage", "version": 3, "state": "ready"}
        await publish(session, mine, "adapter.state_changed", told, once=uuid4().hex)
    for _ in range(2):
        await bench.feed.look()
    everything = heard(operator)
    own = [(each["kind"], each["objects"]) for each in everything if each["tenant"] == str(mine)]
    assert own == [("adapter", ["triage"]), ("key", []), ("adapter", ["triage"])]
    assert ("replica", ["http://r9"]) in [(each["kind"], each["objects"]) for each in everything]
    assert about(viewer, mine) == [("adapter", ["triage"])] * 2
    assert heard(stranger) == []


async def test_what_commits_late_is_heard_of_too(bench: Bench, tenant: TenantId) -> None:
    operator = bench.feed.join(OPERATOR, None)
    await bench.feed.look()
    await bench.change("alias.move", "triage@live", tenant, age=timedelta(seconds=20))
    await bench.feed.look()
    await bench.feed.look()
    assert about(operator, tenant) == [("alias", ["triage"])]


class Source:
    """Says that some of what it has to tell is lost, or does not answer."""

    def __init__(self, *, away: bool = False) -> None:
        self.complete = False
        self._away = away

    def forget(self) -> None:
        pass

    async def look(self) -> tuple[list[Told], bool]:
        if self._away:
            raise Unavailable("away")
        return [], self.complete


async def test_what_the_log_said_is_told_when_the_fleet_can_not_be_asked(
    bench: Bench, tenant: TenantId
) -> None:
    """The log says it once."""
    feed = Feed(bench.logs, Source(away=True), bench.sessions, bench.leaving)  # type: ignore[arg-type]
    operator = feed.join(OPERATOR, None)
    await bench.change("alias.move", "triage@live", tenant)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await feed.look()
    assert about(operator, tenant) == [("alias", ["triage"])]


async def test_all_are_told_to_read_all_now_and_then_however_long_too_much_happens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one tenant's many changes would have everybody else read all each second."""
    quiet, flood = Source(), Source()
    quiet.complete = True
    feed = Feed(flood, quiet, bench.sessions, bench.leaving)  # type: ignore[arg-type]
    follower = feed.join(OPERATOR, None)
    for _ in range(5):
        await feed.look()
    assert follower.take().count(b"event: reset") == 1
    assert follower.doubted
    flood.complete = True
    monkeypatch.setattr("gateway.changes.feed.RESET_S", 0.0)
    for _ in range(2):
        await feed.look()
    assert follower.take().count(b"event: reset") == 1, "for what was lost since the first one"


async def test_more_moves_than_are_kept_are_not_all(bench: Bench, line: Line) -> None:
    moves = Moves(bench.registry)
    fleet = FleetTail(bench.db, line.base_id, bench.registry, moves)
    fleet.forget()
    assert await fleet.look() == ([], True)
    moves.number += 1  # of one that is forgotten already
    assert await fleet.look() == ([], False)
    assert await fleet.look() == ([], True)


async def test_who_was_cut_off_goes_on_or_is_told_to_read_all(bench: Bench, tenant: TenantId) -> None:
    first = bench.feed.join(OPERATOR, None)
    assert b'"complete":true' in first.take()
    place = str(uuid7())
    bench.feed.leave(first)
    await bench.change("alias.move", "triage@live", tenant)
    await bench.feed.look()
    again = bench.feed.join(Audience(Role.VIEWER, tenant), place)
    raw = again.take()
    assert b'"complete":true' in raw
    assert raw.count(b"event: change") == 1
    long_ago = UUID(int=first_id_of(datetime.now(UTC) - timedelta(hours=1)).int | 0x7 << 76 | 1 << 63)
    for unknown in (str(long_ago), "nonsense", str(uuid4())):
        assert b'"complete":false' in bench.feed.join(OPERATOR, unknown).take()


async def test_moves_are_told_to_operators_and_to_whose_adapter_moved(
    bench: Bench, line: Line, new_tenant: NewTenant
) -> None:
    artefact = await add_adapter(bench.db, line, "triage")
    owner = bench.feed.join(Audience(Role.VIEWER, line.tenant), None)
    stranger = bench.feed.join(Audience(Role.TENANT_ADMIN, await new_tenant()), None)
    operator = bench.feed.join(OPERATOR, None)
    replica = bench.registry.all[0]
    view = replace(replica.view, base_id=line.base_id)
    bench.registry._hear(replica, view, "")
    bench.registry._hear(replica, replace(view, host=frozenset({artefact})), "")
    replica.draining = True
    await bench.feed.look()
    assert about(owner, line.tenant) == [("placement", ["triage"])]
    assert heard(stranger) == []
    told = [(each["kind"], each["objects"]) for each in heard(operator) if each["tenant"] is None]
    assert [one for one in told if one[0] in ("move", "replica")][-2:] == [
        ("move", ["http://r0"]),
        ("replica", ["http://r0"]),
    ]


def test_a_slow_client_is_dropped_and_nothing_is_kept_for_it() -> None:
    follower = Follower(OPERATOR)
    for _ in range(MOST_WAITING + 1):
        follower.put_frame(b"event: change\n\n")
    assert follower.ended == "slow"
    follower.put_frame(b"more")
    assert follower.take() == b""


async def test_sessions_that_are_over_and_a_worker_that_leaves_end_streams(bench: Bench) -> None:
    mine, others = uuid7(), uuid7()
    cookies = [(await bench.sessions.open(each, None))[0] for each in (mine, others)]
    streams = [bench.feed.join(replace(OPERATOR, cookie=cookie), None) for cookie in cookies]
    by_token = bench.feed.join(OPERATOR, None)
    await bench.feed.check_sessions()
    assert [each.ended for each in streams] == [None, None]
    await bench.sessions.close_all(mine)
    await bench.feed.check_sessions()
    assert [each.ended for each in (*streams, by_token)] == ["session_ended", None, None]
    bench.leaving.begun = True
    async with bench.feed.running():
        await by_token.wait(5)
        while by_token.ended is None:
            await by_token.wait(1)
    assert (streams[1].ended, by_token.ended) == ("draining", "draining")


async def test_a_change_of_members_has_rights_looked_at_again(bench: Bench, new_tenant: NewTenant) -> None:
    mine, other = await new_tenant(), await new_tenant()
    member = bench.feed.join(Audience(Role.VIEWER, mine), None)
    await bench.change("member.remove", "a@example.com", mine)
    await bench.feed.look()
    assert member.doubted
    assert about(member, mine) == [], "a viewer does not read the list of members"
    removed = Told(id=uuid7(), kind="member", tenant=mine, objects=[], at=datetime.now(UTC))
    touched = [each.touched_by(removed) for each in (Audience(Role.VIEWER, other), OPERATOR)]
    assert touched == [False, True]


async def test_who_is_given_a_lesser_role_hears_no_more_of_what_the_other_one_reads(
    bench: Bench, tenant: TenantId
) -> None:
    """The stream outlives the moment in which the role was looked up."""
    sent: list[bytes] = []
    begun = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        begun.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def still() -> Role:
        return Role.VIEWER

    changes = Changes(bench.feed, OpenStreams(StreamBounds(8, 2)), 15.0, bench.leaving)
    asked = Asked(uuid4(), Audience(Role.TENANT_ADMIN, tenant), None, still)
    stream = asyncio.create_task(changes.follow(asked, receive, send))
    await begun.wait()
    await bench.change("member.update", "a@example.com", tenant)
    await bench.change("api_key.create", "ab12cd34", tenant)
    await bench.feed.look()
    async with asyncio.timeout(10):
        await stream
    told = b"".join(sent)
    assert b"event: change" not in told
    assert b'"reason":"renew"' in sent[-1]


def test_streams_are_bounded_for_all_a_tenant_and_an_account() -> None:
    streams = OpenStreams(StreamBounds(most=8, of_account=2))
    account, tenant = uuid4(), uuid4()
    with streams.one_of(account, tenant), streams.one_of(account, tenant):
        with pytest.raises(RateLimited), streams.one_of(account, None):
            pass
        with pytest.raises(Unavailable) as full, streams.one_of(uuid4(), tenant):
            pass
        assert full.value.code == "too_many_streams"
        with streams.one_of(uuid4(), None):
            assert streams.now == 3
    assert streams.now == 0
    held = [streams.one_of(uuid4(), None) for _ in range(8)]
    for each in held:
        each.__enter__()
    with pytest.raises(Unavailable), streams.one_of(uuid4(), None):
        pass
    for each in held:
        each.__exit__(None, None, None)
    assert streams.now == 0
