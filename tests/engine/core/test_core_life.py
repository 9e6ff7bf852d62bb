"""The core as a process: how it fails, what it reports, how it drains, and what a full disk does to it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

from engine.core.journal import Journal
from engine.core.protocol import Drain, Ended, Failed, Outcome, Stats
from tests.engine.core.fakes import Ask, Bench, add, expected

PROMPT = [7, 8, 9, 10, 11, 12]


def test_a_core_that_fails_says_so_journals_what_was_open_and_returns_non_zero(bench: Bench) -> None:
    bench.send(add("r", PROMPT, Ask(max_tokens=50)))
    for _ in range(4):
        bench.step()
    bench.runner.crash = True
    assert bench.loop.run_forever() == 1
    assert isinstance(bench.transport.sent[-1], Failed)
    assert "the device is lost" in bench.transport.sent[-1].reason
    assert bench.ended("r").outcome is Outcome.CORE_FAILED
    assert bench.lines()[0].completion == len(bench.tokens("r"))


def test_stats_come_while_working_and_when_idle(bench: Bench) -> None:
    bench.run(add("r", PROMPT, Ask(max_tokens=60)))
    bench.now += 2
    bench.step()
    stats = [f for f in bench.transport.sent if isinstance(f, Stats)]
    assert [s.sequence for s in stats] == list(range(1, len(stats) + 1))
    assert len(stats) >= 3
    assert stats[-1].generation_tokens_total == 60
    assert (stats[-1].running, stats[-1].waiting, stats[-1].blocks_used) == (0, 0, 0)


def test_drain_ends_what_is_open_and_returns_zero(bench: Bench) -> None:
    bench.send(add("r", PROMPT, Ask(max_tokens=50)))
    bench.step()
    bench.send(Drain())
    assert bench.loop.run_forever() == 0
    assert isinstance(bench.transport.sent[-1], Stats | Ended)
    assert bench.ended("r").outcome is Outcome.CORE_FAILED, "the replica's doing: nobody pays for it"


def test_what_comes_after_a_drain_ends_too(bench: Bench) -> None:
    bench.send(Drain(), add("late", PROMPT))
    assert bench.loop.run_forever() == 0
    assert bench.ended("late").outcome is Outcome.CORE_FAILED
    assert [line.request for line in bench.lines()] == ["late"]


def test_a_full_disk_fails_requests_and_not_the_core(bench: Bench) -> None:
    """What can't be recorded can't be billed: it fails with a count of nothing, and the next one is refused
    before it is computed, until there is room."""
    bench.run(add("before", PROMPT))
    bench.send(add("caught", PROMPT, Ask(max_tokens=20)))
    bench.step()
    with full_disk(bench.journal, room=10):
        bench.run()
        assert bench.ended("caught").outcome is Outcome.CORE_FAILED
        assert bench.ended("caught").usage.completion == 0
        bench.run(add("during", PROMPT))
        assert bench.ended("during").outcome is Outcome.CORE_FAILED
        assert bench.ended("during").reason == "The replica can't record usage now."
    after = add("after", PROMPT)
    bench.run(after)
    assert bench.tokens("after") == expected(after)
    assert [(line.request, line.n) for line in bench.lines()] == [("before", 1), ("after", 2)]


@contextlib.contextmanager
def full_disk(journal: Journal, room: int) -> Iterator[None]:
    """Files of this process may not grow past the journal's size and `room` bytes: the kernel says so as it
    does of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal._size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
