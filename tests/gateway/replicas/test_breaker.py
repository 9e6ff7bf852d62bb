from __future__ import annotations

from gateway.replicas.breaker import FAILURES_TO_OPEN, OPEN_S, Breaker, BreakerState


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        assert breaker.admits
        assert not breaker.begin()
        breaker.fail()
    assert breaker.state is BreakerState.OPEN
    assert not breaker.admits
    return breaker


def test_a_thousand_bad_prompts_never_open_it() -> None:
    breaker = Breaker(Clock())
    for _ in range(1000):
        breaker.dismiss(probe=breaker.begin())
    assert breaker.admits


def test_successes_between_failures_keep_it_closed() -> None:
    breaker = Breaker(Clock())
    for _ in range(50):
        breaker.fail()
        breaker.succeed()
    assert breaker.state is BreakerState.CLOSED


def test_half_open_lets_one_probe_through_and_its_end_decides() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += OPEN_S
    assert breaker.admits
    assert breaker.begin()
    assert not breaker.admits
    assert not breaker.begin()
    breaker.fail(probe=True)
    assert breaker.state is BreakerState.OPEN
    clock.now += OPEN_S
    breaker.succeed(probe=breaker.begin())
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_said_nothing_is_followed_by_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += OPEN_S
    breaker.dismiss(probe=breaker.begin())
    assert breaker.admits
    assert breaker.begin()


def test_requests_from_before_it_opened_neither_close_it_nor_let_a_second_probe_in() -> None:
    clock = Clock()
    breaker = opened(clock)
    breaker.succeed()
    assert not breaker.admits
    clock.now += OPEN_S
    assert breaker.begin()
    for end in (breaker.dismiss, breaker.succeed, breaker.fail):
        end()
        assert not breaker.admits
    breaker.succeed(probe=True)
    assert breaker.closed


def test_streams_that_die_while_it_is_open_do_not_keep_it_open() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += OPEN_S - 1
    breaker.fail()
    clock.now += 1
    assert breaker.state is BreakerState.HALF_OPEN
