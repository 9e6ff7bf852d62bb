"""What control asks of replicas, in virtual time: what is placed, what was hot before a start, no more."""

from __future__ import annotations

from uuid import uuid4

from gateway.models import PlacementTier
from gateway.placement.planning import BACK_S, MOST_CALLS, RENEW_S, Hot, Planner, Wanted, homes
from gateway.replicas.driver import ReplicaView
from gateway.replicas.replica import Replica
from gateway.replicas.routing import Router
from gateway.replicas.want import Want
from tests.gateway.replicas.fleet import Clock, replica

OWNER = uuid4()


class Fleet:
    """A planner over three replicas that hold what they are said to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.replicas = tuple(replica(name, self.clock) for name in ("a", "b", "c"))
        self.planner = Planner(self.clock)
        self.sequence = 1

    def hold(self, one: Replica, *artefacts: str) -> None:
        self.sequence += 1
        held = frozenset(artefacts)
        one.see(ReplicaView(device=held, host=held, base_id="b", sequence=self.sequence))

    def restart(self, one: Replica) -> None:
        """It is up again before anybody saw that it was down."""
        one.see(ReplicaView(base_id="b", sequence=1))

    def wanted(self, artefact: str, number: int, **more: object) -> Wanted:
        given: dict[str, object] = {"pinned": True, "tier": PlacementTier.HOST, **more}
        return Wanted(artefact, OWNER, number, members=self.replicas, **given)  # type: ignore[arg-type]

    def asked(self, *wanted: Wanted) -> list[tuple[str, str]]:
        return [(call.replica.url, call.artefact) for call in self.planner.plan(wanted)]

    def hot(self, *artefacts: str) -> list[Hot]:
        return [Hot(artefact, OWNER, self.replicas) for artefact in artefacts]

    def warmed(self, *hot: str) -> list[tuple[str, str]]:
        """Of a round in which some replica has begun a life."""
        assert self.planner.look(self.replicas)
        self.planner.warm(self.hot(*hot))
        return self.asked()


def test_what_is_pinned_is_asked_for_on_its_homes_again_and_again() -> None:
    fleet = Fleet()
    wanted = fleet.wanted("x" * 64, 2, tier=PlacementTier.DEVICE)
    first = [one.url for one in homes("x" * 64, fleet.replicas, 2)]
    (call, other) = fleet.planner.plan([wanted])
    assert [call.replica.url, other.replica.url] == first
    assert call.keep_s is not None
    assert call.on_device
    assert fleet.asked(wanted) == []
    fleet.clock.now += RENEW_S
    assert [url for url, _ in fleet.asked(wanted)] == first
    fleet.planner.failed(call)  # one that did not get there is not waited for
    assert [url for url, _ in fleet.asked(wanted)] == first[:1]
    call.replica.healthy = False
    fleet.clock.now += RENEW_S
    assert [url for url, _ in fleet.asked(wanted)] == first[1:]


def test_what_is_not_pinned_is_brought_back_now_and_then() -> None:
    fleet = Fleet()
    wanted = fleet.wanted("x" * 64, 1, pinned=False)
    (home,) = homes("x" * 64, fleet.replicas, 1)
    (call,) = fleet.planner.plan([wanted])
    assert (call.replica, call.keep_s) == (home, None)
    fleet.hold(home, "x" * 64)
    fleet.clock.now += BACK_S
    assert fleet.asked(wanted) == []
    fleet.hold(home)  # pushed out
    assert fleet.asked(wanted) == [(home.url, "x" * 64)]
    fleet.clock.now += BACK_S / 2
    assert fleet.asked(wanted) == []


def test_a_round_asks_a_bounded_number_of_a_replica_and_the_next_one_the_rest() -> None:
    fleet = Fleet()
    wanted = [fleet.wanted(f"{n:064x}", 3) for n in range(MOST_CALLS + 4)]
    rounds = [fleet.asked(*wanted) for _ in range(3)]
    assert [len(asked) for asked in rounds] == [3 * MOST_CALLS, 3 * 4, 0]
    assert len(set(rounds[0]) | set(rounds[1])) == 3 * len(wanted)


def test_after_a_start_what_was_hot_lies_where_the_router_will_look_for_it() -> None:
    fleet = Fleet()
    router = Router(fleet.clock)
    names = [f"{n:064x}" for n in range(20)]
    asked = fleet.warmed(*names)  # nobody knows what was before: all that lies nowhere comes back, once
    assert sorted(artefact for _, artefact in asked) == names
    by_url = {one.url: one for one in fleet.replicas}
    for url, artefact in asked:
        cold = {r.url for r in router.homes(artefact, fleet.replicas, fleet.replicas)}
        assert url in cold  # a request that came meanwhile chooses among the same
        by_url[url].expect(artefact)
        assert router.choose(fleet.replicas, Want(artefact), fleet.replicas) is by_url[url]
    assert fleet.asked() == []
    assert not fleet.planner.look(fleet.replicas)


def test_a_replica_that_began_anew_gets_back_what_only_it_had_or_had_a_share_of() -> None:
    fleet = Fleet()
    one, other, _ = fleet.replicas
    shared = next(n for n in map("{:064x}".format, range(99)) if homes(n, fleet.replicas, 2)[0] is one)
    fleet.hold(one, "alone", shared)
    fleet.hold(other, "elsewhere")
    fleet.hold(homes(shared, fleet.replicas, 2)[1], "elsewhere", shared)
    fleet.warmed("alone", "elsewhere", shared)
    fleet.planner.plan([])
    fleet.restart(one)
    asked = fleet.warmed("alone", "elsewhere", shared, "never held")
    assert (one.url, shared) in asked  # two had it, one of them was this one
    assert {artefact for _, artefact in asked} == {"alone", shared, "never held"}
    assert fleet.asked() == []


def test_a_start_is_seen_by_a_smaller_sequence_an_empty_memory_or_a_time_away() -> None:
    fleet = Fleet()
    one = fleet.replicas[0]
    for each in fleet.replicas:
        fleet.hold(each, "x")
    assert fleet.planner.look(fleet.replicas)  # never seen before
    fleet.planner.warm([])
    assert not fleet.planner.look(fleet.replicas)
    one.see(ReplicaView(device=one.view.device, host=one.view.host, sequence=1))
    assert fleet.planner.look(fleet.replicas)
    fleet.planner.warm([])
    one.see(ReplicaView(sequence=500))
    assert fleet.planner.look(fleet.replicas)
    fleet.planner.warm([])
    one.life += 1
    assert fleet.planner.look(fleet.replicas)
