"""Plans as bytes and back, trace files, and a core's trace replayed on another runner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.plan import LoadedAdapter, Row, SamplePlan, StepPlan
from engine.core.protocol import AdapterRef, Sampling, Tier
from engine.core.replay import NamedHandle, NamingSource, replay
from engine.core.trace import (
    HEADER,
    Cleared,
    Installed,
    TraceUnreadable,
    TraceWriter,
    decode,
    encode,
    read_trace,
)
from tests.engine.core.fakes import Ask, Bench, FakeRunner, adapter, add

PLAIN = Sampling(max_tokens=4, seed=2**64 - 1, temperature=0.7, logit_bias={3: -1.5}, stop_token_ids=(9,))
PENALISED = Sampling(max_tokens=4, seed=1, frequency_penalty=0.5, logprobs=2)


def plan(*rows: Row) -> StepPlan:
    return StepPlan(step=7, rows=rows, slot_epoch=3)


def row(sample: SamplePlan | None, *, prompt_logprobs: bool = False) -> Row:
    return Row(5, (11, 12), 30, (4, 0, 70_000), 2, sample, prompt_logprobs)


def test_a_plan_comes_back_as_it_was() -> None:
    original = plan(
        row(None, prompt_logprobs=True),
        row(SamplePlan(PENALISED, 1, (1, 2), (3,), banned=(100,), unlisted=1)),
        row(SamplePlan(PLAIN, 0, (), (), unlisted=12)),
        Row(6, (-1,), 31, (4, 1), -1, SamplePlan(PLAIN, 0, (), (), unlisted=13)),
    )
    assert decode(encode(original)) == original


def test_tokens_so_far_are_left_out_where_only_their_number_counts() -> None:
    long = SamplePlan(PLAIN, 0, range(5_000), range(1_000), unlisted=1)
    data = encode(plan(row(long)))
    assert len(data) < 150
    (decoded,) = decode(data).rows  # type: ignore[union-attr]  # a plan went in
    assert decoded.sample is not None
    assert decoded.sample.counter == long.counter == 1_001


def test_slots_come_back_too() -> None:
    for entry in (Installed(3, AdapterRef("a" * 64, "owner")), Cleared(2)):
        assert decode(encode(entry)) == entry


@pytest.mark.parametrize("data", [b"", b"\x93", encode(Cleared(1))[:-1], b"\x92\xa5other\x01"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TraceUnreadable):
        decode(data)


def test_a_file_ends_at_its_size_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = plan(row(SamplePlan(PLAIN, 0, (), ())))
    size = 4 + len(encode(entry))
    writer = TraceWriter(tmp_path / "trace", max_bytes=len(HEADER) + 3 * size + size // 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            writer.write(entry)
    writer.close()
    assert list(read_trace(tmp_path / "trace")) == [entry] * 3
    assert len(caplog.records) == 1
    assert "reached its size" in caplog.text


def test_a_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    writer = TraceWriter(path, max_bytes=10_000)
    for slot in range(5):
        writer.write(Cleared(slot))
    writer.close()
    path.write_bytes(path.read_bytes()[:-2])
    assert list(read_trace(path)) == [Cleared(slot) for slot in range(4)]
    path.write_bytes(b"something else")
    with pytest.raises(TraceUnreadable):
        list(read_trace(path))


class Named:
    """An adapter source whose handles are the adapters' names, as the fake runner wants them."""

    def is_near(self, adapter: AdapterRef) -> bool:
        return adapter.artefact == "a"

    def load(self, adapter: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        assert fetch
        return LoadedAdapter(adapter.artefact, 10, Tier.DISK, 1.0)

    def forget(self, adapter: AdapterRef) -> None:
        raise AssertionError("nothing is retired here")


def test_handles_are_named_on_their_way_to_a_recorded_runner() -> None:
    loaded = NamingSource(Named()).load(adapter("a"), fetch=True)
    assert loaded == LoadedAdapter(NamedHandle(adapter("a"), "a"), 10, Tier.DISK, 1.0)


@pytest.mark.parametrize("recorded_in_flight", [1, 2])
@pytest.mark.parametrize("replayed_in_flight", [1, 2])
def test_a_recorded_run_replays_to_the_same_results(
    make_bench: Callable[..., Bench], tmp_path: Path, recorded_in_flight: int, replayed_in_flight: int
) -> None:
    """Under few blocks and slots, so that there are preemptions and evictions in it."""
    writer = TraceWriter(tmp_path / "trace", max_bytes=10_000_000)
    bench = make_bench(num_blocks=16, num_slots=2, max_in_flight=recorded_in_flight, trace=writer)
    names = (None, "a", "b", "c")
    for number in range(10):
        bench.send(add(str(number), [number + 1, 5, 6], Ask(adapter=names[number % 4], max_tokens=18)))
        bench.step()
    bench.run()
    writer.close()
    assert bench.loop._scheduler.counters.preemptions > 0
    assert bench.runner.num_pending > 0 or recorded_in_flight == 1
    entries = list(read_trace(tmp_path / "trace"))
    assert any(isinstance(entry, Cleared) for entry in entries)
    other = FakeRunner(bench.config.block_size, max_in_flight=replayed_in_flight)
    assert replay(entries, other, lambda ref: ref.artefact) == bench.runner.results
