"""The core as a process: how it fails, what it reports, how it drains, and what a full disk does to it."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterable, Iterator, Sequence

import pytest

from engine.core.journal import Journal, JournalLine
from engine.core.limits import CHECK_EVERY_S
from engine.core.protocol import Drain, Ended, Failed, Outcome, ServiceClass, Stats
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


def test_what_ended_before_the_journal_failed_is_told_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two end in the same step, and the disk fails between their lines; the third can't be written down."""
    append = bench.journal.append

    def append_one(line: JournalLine) -> None:
        append(line)
        bench.journal._failed = OSError(5, "Input/output error")

    monkeypatch.setattr(bench.journal, "append", append_one)
    bench.send(add("told", PROMPT), add("lost", PROMPT), add("open", PROMPT, Ask(max_tokens=50)))
    assert bench.loop.run_forever() == 1
    assert [(end.request, end.outcome) for end in bench.all_ended()] == [("told", Outcome.FINISHED)]
    assert isinstance(bench.transport.sent[-1], Failed)
    assert [line.request for line in bench.lines()] == ["told"]


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


def test_an_idle_core_checks_itself_and_not_after_each_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many blocks that takes longer than a step, and the next request would wait for it."""
    checked: list[float] = []
    check = bench.loop._blocks.check

    def noted(tables: Iterable[Sequence[int]]) -> None:
        checked.append(bench.now)
        check(tables)

    monkeypatch.setattr(bench.loop._blocks, "check", noted)
    for number in range(5):
        bench.send(add(str(number), PROMPT))
        for _ in range(20):
            bench.loop.step()
            bench.now += bench.step_s
    assert len(bench.all_ended()) == 5
    assert len(checked) == 1
    bench.now += CHECK_EVERY_S
    for _ in range(3):
        bench.loop.step()
    assert len(checked) == 2


def test_a_line_tells_the_class_that_it_may_be_priced_by(bench: Bench) -> None:
    bench.run(add("r", PROMPT, Ask(service_class=ServiceClass.BATCH)))
    assert [line.service_class for line in bench.lines()] == [ServiceClass.BATCH]
