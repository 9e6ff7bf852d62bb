"""The pure core: what holds after any order of events, and its rules one by one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.queueing.admission import TurnedAway
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.lanes import Entry
from gateway.queueing.places import DISTANCE, NOTHING, Reply
from gateway.queueing.scheduler import Scheduler
from gateway.queueing.ticket import MOST_KNOWN, Lines, Ticket

CAPACITY, MARGIN = 8, 2
TENANTS = ("a", "b", "c")


@dataclass
class Bench:
    """A scheduler, the tenants' lines, and what is where."""

    limits: QueueLimits = field(default_factory=QueueLimits)
    weights: tuple[int, ...] = (12, 6, 2)
    now: float = 0.0
    waiting: list[Entry] = field(default_factory=list)
    running: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.limits, self.weights)
        self.scheduler.capacity = CAPACITY
        self.scheduler.set_limits(CAPACITY, CAPACITY + MARGIN)
        self.lines = Lines()

    def entry(
        self,
        tenant: str,
        *,
        index: int = 1,
        tokens: int = 100,
        places: int = 1,
        num_bytes: int = 10,
        within_s: float = 1e6,
        weight: int = 1,
    ) -> Entry:
        ticket = Ticket(index, tokens, self.scheduler.floor(index, self.now), weight=weight)
        self.lines.enter(tenant, ticket)
        return Entry(tenant, ticket, places, num_bytes, self.now, self.now + within_s)

    def enter(self, tenant: str, **how: int) -> Entry:
        """Raises `TurnedAway`."""
        entry = self.entry(tenant, **how)
        try:
            self.scheduler.enter(entry, self.now)
        except TurnedAway:
            self.lines.settle(tenant, entry.ticket, 0)
            raise
        self.waiting.append(entry)
        return entry

    def pump(self) -> list[Entry]:
        went = []
        while (entry := self.scheduler.next(self.now)) is not None:
            went.append(entry)
            self.waiting.remove(entry)
            self.running.append(entry)
        for late in self.scheduler.expired:
            self.waiting.remove(late)
            self.lines.settle(late.tenant, late.ticket, 0)
        self.scheduler.expired.clear()
        return went

    def leave(self, entry: Entry, used: int) -> None:
        self.running.remove(entry)
        self.lines.settle(entry.tenant, entry.ticket, used)
        self.scheduler.leave(entry, used, self.now)

    def withdraw(self, entry: Entry) -> None:
        self.waiting.remove(entry)
        self.scheduler.withdraw(entry, self.now)
        self.lines.settle(entry.tenant, entry.ticket, 0)

    def check(self) -> None:
        """Everything is where it is said to be, and nothing is over its bound."""
        scheduler, limits = self.scheduler, self.limits
        held = scheduler.bounds.all
        assert held.items == len(self.waiting) == sum(lane.items for lane in scheduler.lanes)
        assert held.items <= limits.max_items
        assert held.tokens == sum(e.ticket.tokens for e in self.waiting)
        assert held.num_bytes == sum(e.num_bytes for e in self.waiting)
        assert scheduler.used == sum(e.taken for e in self.running)
        for tenant, own in scheduler.bounds.tenants.items():
            assert own.items == sum(e.tenant == tenant for e in self.waiting) <= limits.max_items_tenant
        for tenant in TENANTS:
            assert scheduler.held_by(tenant) == sum(e.taken for e in self.running if e.tenant == tenant)
        for lane in scheduler.lanes:
            assert sum(len(flow.waiting) for flow in lane.flows.values()) == lane.items
            for flow in lane.flows.values():
                assert flow.length == pytest.approx(sum(e.ticket.length for e in flow.waiting.values()))


STEP = st.one_of(
    st.tuples(
        st.just("enter"),
        st.sampled_from(TENANTS),
        st.integers(0, 2),
        st.integers(1, 500),
        st.sampled_from([1, 1, 1, 4, 8]),
    ),
    st.tuples(st.just("leave"), st.integers(0, 30), st.integers(0, 500)),
    st.tuples(st.just("withdraw"), st.integers(0, 30)),
    st.tuples(st.just("again"), st.integers(0, 30)),
    st.tuples(st.just("pass"), st.floats(0.01, 30.0)),
    st.tuples(st.just("limit"), st.integers(0, CAPACITY), st.integers(0, MARGIN)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_whatever_happens_nothing_is_lost_and_nothing_is_over(steps: list[tuple[object, ...]]) -> None:
    bench = Bench(QueueLimits(max_items=24, max_items_tenant=12, max_tokens=4_000, max_bytes=500))
    for step in steps:
        match step:
            case ("enter", str(tenant), int(index), int(tokens), int(places)):
                with suppress(TurnedAway):
                    bench.enter(tenant, index=index, tokens=tokens, places=places, within_s=60)
            case ("leave", int(which), int(used)) if bench.running:
                entry = bench.running[which % len(bench.running)]
                bench.leave(entry, min(used, entry.ticket.tokens))
            case ("withdraw", int(which)) if bench.waiting:
                bench.withdraw(bench.waiting[which % len(bench.waiting)])
            case ("again", int(which)) if bench.running:
                entry = bench.running.pop(which % len(bench.running))
                entry.ticket.served = False
                bench.scheduler.leave(entry, 0, bench.now)
                bench.scheduler.enter_again(entry, bench.now)
                bench.waiting.append(entry)
            case ("pass", float(seconds)):
                bench.now += seconds
                bench.scheduler.age(bench.now)
            case ("limit", int(limit), int(margin)):
                bench.scheduler.set_limits(limit, limit + margin)
        before = bench.scheduler.used
        bench.pump()
        scheduler = bench.scheduler
        assert scheduler.used <= max(before, scheduler.limit_owed)
        bench.check()
    bench.scheduler.set_limits(CAPACITY, CAPACITY + MARGIN)
    for _ in range(1_000):  # nobody starves: with places coming free, all of them go
        bench.pump()
        if not bench.running:
            break
        bench.leave(bench.running[0], 1)
    bench.check()
    assert not bench.waiting
    assert bench.scheduler.num_tenants == bench.scheduler.used == 0
    assert not any(lane.flows for lane in bench.scheduler.lanes)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(0, 2)), min_size=1, max_size=60))
def test_a_tenant_is_served_in_its_own_order(arrivals: list[tuple[str, int]]) -> None:
    bench = Bench()
    bench.scheduler.set_limits(0, 0)
    entered = [bench.enter(tenant, index=index) for tenant, index in arrivals]
    bench.scheduler.set_limits(1, 1)
    order: list[Entry] = []
    while bench.waiting:
        order += bench.pump()
        bench.leave(bench.running[0], 50)
    for tenant in TENANTS:
        for index in range(3):
            mine = [e for e in entered if (e.tenant, e.ticket.index) == (tenant, index)]
            assert [e for e in order if e in mine] == mine


def test_tokens_are_shared_by_the_weight_of_tenants() -> None:
    bench = Bench()
    bench.scheduler.set_limits(0, 0)
    for _ in range(60):
        bench.enter("a", weight=3)
        bench.enter("b", weight=1)
    bench.scheduler.set_limits(1, 1)
    order = []
    for _ in range(40):
        order += bench.pump()
        bench.leave(bench.running[0], 100)
    assert [e.tenant for e in order].count("a") == pytest.approx(30, abs=1)


def test_who_asks_and_withdraws_gets_no_further_forward() -> None:
    """Tags of what waits are moved by what was served for less, never by what was not served."""
    bench = Bench()
    bench.scheduler.set_limits(0, 0)
    bench.enter("b")
    mine = [bench.enter("a") for _ in range(4)]
    for _ in range(20):
        bench.withdraw(bench.enter("a", tokens=5_000))
    for _ in range(3):
        bench.enter("b")
    bench.scheduler.set_limits(1, 1)
    order = []
    for _ in range(8):
        order += bench.pump()
        bench.leave(bench.running[0], 100)
    assert [e.tenant for e in order[:6]].count("a") == 3
    assert all(e in order for e in mine)


def test_a_newcomer_takes_a_place_above_the_limit_and_it_is_paid_back() -> None:
    bench = Bench()
    for _ in range(20):
        bench.enter("a")
    assert len(bench.pump()) == CAPACITY
    bench.enter("b")
    assert [e.tenant for e in bench.pump()] == ["b"]
    bench.leave(bench.running[0], 100)
    assert bench.pump() == []
    bench.leave(bench.running[0], 100)
    assert [e.tenant for e in bench.pump()] == ["a"]


def test_more_tenants_than_places_are_owed_none() -> None:
    bench = Bench()
    for n in range(CAPACITY + 1):
        bench.enter(f"t{n}")
    assert len(bench.pump()) == CAPACITY


def test_many_choices_wait_in_front_until_there_is_room_for_them() -> None:
    """Else a stream of small requests could keep them out for ever."""
    bench = Bench()
    for _ in range(CAPACITY):
        bench.enter("a")
    bench.pump()
    wide = bench.enter("b", places=8)
    for _ in range(4):
        bench.enter("a")
    while wide in bench.waiting:
        went = bench.pump()
        assert not went or went[0] is wide
        if wide in bench.waiting:
            bench.leave(bench.running[0], 100)
    assert bench.scheduler.used <= CAPACITY + MARGIN


def test_only_what_is_in_turn_among_all_workers_goes() -> None:
    bench = Bench()
    bench.scheduler.lanes[1].time = 3 * DISTANCE
    bench.enter("a")
    bench.enter("b")
    head = bench.scheduler.lanes[1].first()
    assert head is not None
    earlier = head.key - DISTANCE - 1
    behind = Reply(limit=8, limit_owed=8, heads=[NOTHING, earlier, NOTHING], wanted=1, tenants=90)
    bench.scheduler.apply(behind, bench.now)
    assert bench.pump() == []
    bench.scheduler.apply(Reply(limit=8, limit_owed=8, heads=[NOTHING, head.key, NOTHING]), bench.now)
    assert len(bench.pump()) == 2


def test_what_others_said_long_ago_holds_nobody_up() -> None:
    bench = Bench()
    bench.scheduler.lanes[1].time = 10 * DISTANCE
    entry = bench.enter("a")
    reply = Reply(limit=8, limit_owed=8, heads=[NOTHING, 0.0, NOTHING], wanted=1, tenants=90)
    bench.scheduler.apply(reply, bench.now)
    assert bench.pump() == []
    bench.now += 1
    assert bench.pump() == [entry]


@pytest.mark.parametrize(
    ("limits", "bound"),
    [
        (QueueLimits(max_items=3), "items"),
        (QueueLimits(max_items_tenant=3), "tenant_items"),
        (QueueLimits(max_tokens=300), "tokens"),
        (QueueLimits(max_tokens_tenant=300), "tenant_tokens"),
        (QueueLimits(max_bytes=30), "bytes"),
        (QueueLimits(max_bytes_tenant=30), "tenant_bytes"),
    ],
)
def test_each_bound_turns_away(limits: QueueLimits, bound: str) -> None:
    bench = Bench(limits)
    bench.scheduler.set_limits(0, 0)
    for _ in range(3):
        bench.enter("a")
    with pytest.raises(TurnedAway) as away:
        bench.enter("a")
    assert away.value.bound == bound
    bench.check()


def test_what_is_larger_than_a_bound_waits_where_nothing_else_does() -> None:
    bench = Bench(QueueLimits(max_tokens=100, max_tokens_tenant=100, max_bytes=5, max_bytes_tenant=5))
    bench.scheduler.set_limits(0, 0)
    bench.enter("a", tokens=1_000)
    with pytest.raises(TurnedAway):
        bench.enter("b", tokens=1)


def test_an_adapters_load_is_charged_to_whoever_causes_it() -> None:
    bench = Bench()
    lane = bench.scheduler.lanes[1]
    ticket = Ticket(1, 2_100, lane.time, load_tokens=2_000)
    bench.lines.enter("a", ticket)
    entry = Entry("a", ticket, 1, 10, 0.0, 1e6)
    bench.scheduler.enter(entry, 0.0)
    bench.waiting.append(entry)
    bench.pump()
    assert lane.served * lane.share == pytest.approx(2_100)
    bench.leave(entry, 40)
    assert lane.served * lane.share == pytest.approx(2_040)
    assert bench.entry("a").ticket.tag == pytest.approx(2_040)


def test_a_newcomer_begins_where_the_least_waits_not_where_estimates_led() -> None:
    """A flood that uses a hundredth of what it asks for has moved the virtual time far ahead of itself."""
    bench = Bench()
    bench.scheduler.set_limits(2, 2)
    for _ in range(30):
        bench.enter("a", tokens=10_000)
    for _ in range(8):
        bench.pump()
        bench.leave(bench.running[0], 100)
    bench.pump()
    bench.enter("b")
    bench.leave(bench.running[0], 100)
    assert [e.tenant for e in bench.pump()] == ["b"]


def test_what_is_too_late_is_never_let_go() -> None:
    bench = Bench()
    bench.scheduler.set_limits(0, 0)
    late = bench.enter("a", within_s=5)
    bench.enter("a")
    other = bench.enter("b")
    bench.now = 5.0
    bench.scheduler.set_limits(2, 2)
    assert other in bench.pump()
    assert late not in bench.running
    assert late not in bench.waiting
    bench.check()


def test_lines_of_tenants_that_are_idle_are_forgotten_and_no_others() -> None:
    lines = Lines()
    for n in range(MOST_KNOWN - 1):
        lines.enter(f"t{n}", Ticket(1, 100, 0.0))
    lines.enter("t0", Ticket(1, 10_000, 0.0))
    lines.enter("last", Ticket(1, 100, 0.0))
    lines.enter("new", Ticket(1, 100, 200.0))
    assert len(lines) == 2
    again = Ticket(1, 1, 200.0)
    lines.enter("t0", again)
    assert again.tag == 10_100


def test_newcomers_do_not_keep_out_one_with_many_choices() -> None:
    """Three tenants ask without end, each for less than its part; a fourth wants all places at once."""
    bench = Bench()
    for _ in range(3):
        for tenant in ("a", "b", "c"):
            bench.enter(tenant)
    bench.pump()
    wide = bench.enter("d", places=8)
    for _ in range(100):
        bench.leave(bench.running[0], 100)
        for tenant in ("a", "b", "c"):
            if bench.scheduler.bounds.tenants.get(tenant) is None:
                bench.enter(tenant)
        bench.pump()
        if wide in bench.running:
            break
    assert wide in bench.running


def test_how_deep_the_queue_is_with_what_others_said_lately() -> None:
    bench = Bench()
    bench.scheduler.set_limits(0, 0)
    bench.enter("a", tokens=100)
    bench.enter("b", tokens=300, places=2)
    own = bench.scheduler.depth(bench.now)
    assert (own.waiting, own.waiting_tokens, own.tokens_per_s, own.wait_s) == (3, 400, None, None)
    bench.scheduler.apply(Reply(wanted=4, waiting=600.0, rate=50.0, workers=3), bench.now)
    both = bench.scheduler.depth(bench.now)
    assert (both.waiting, both.waiting_tokens, both.wait_s, both.workers) == (7, 1_000, 20.0, 3)
    assert bench.scheduler.depth(bench.now + 10).waiting == 3  # the others can't be reached
    assert Bench().scheduler.depth(0.0).wait_s == 0.0
