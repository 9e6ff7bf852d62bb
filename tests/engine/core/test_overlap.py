"""Two steps in flight change nothing that anyone can see: not a token, a count, a frame or an end.

The fake runner computes a step only when it is waited for, takes pending tokens from its own memory, and
asserts that no slot of a submitted step is touched and that every row finds the KV it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.protocol import (
    Abort,
    AddRequest,
    Drain,
    FinishReason,
    Outcome,
    Retire,
    Sampling,
    StopChoice,
    TokenLogprob,
    Tokens,
    Usage,
)
from tests.engine.core.fakes import EOS, Ask, Bench, adapter, add, expected

PROMPT = [7, 8, 9, 10, 11, 12]
Make = Callable[..., Bench]


def test_the_next_step_is_submitted_before_the_first_is_known(make_bench: Make) -> None:
    bench = make_bench(max_in_flight=2)
    request = add("r", PROMPT, Ask(max_tokens=8))
    bench.send(request)
    assert bench.step()
    assert bench.tokens("r") == []
    assert [step.number for step in bench.runner.unfinished] == [1]
    assert bench.step()
    assert bench.tokens("r") == expected(request)[:1]
    assert [step.number for step in bench.runner.unfinished] == [2]
    bench.run()
    assert bench.tokens("r") == expected(request)
    assert bench.runner.num_pending == 7, "every token but the first was computed unseen"
    assert len(bench.runner.rows) == 8, "the last token is known to be the last: no row too many"


def test_a_row_after_the_end_token_is_neither_sent_nor_billed(make_bench: Make) -> None:
    bench = make_bench(max_in_flight=2)
    request = ends_by_itself()
    bench.run(request)
    answer = expected(request)
    assert bench.tokens("r") == answer
    assert bench.ended("r").usage == Usage(2, len(answer), 0)
    assert len(bench.runner.rows) == len(answer) + 1, "one row was computed for nothing"
    assert bench.stats().generation_tokens_total == len(answer)


def test_a_slot_is_kept_until_the_last_step_that_uses_it_has_run(make_bench: Make) -> None:
    """The adapter's one sequence ends, and another waits for the only slot, while a row for nothing is in
    flight."""
    bench = make_bench(max_in_flight=2, num_slots=1)
    first = ends_by_itself(adapter_name="a")
    second = add("s", PROMPT, Ask(adapter="b"))
    bench.run(first, second)
    assert bench.tokens("r") == expected(first)
    assert bench.tokens("s") == expected(second)


def test_an_adapter_retired_in_flight_leaves_once_its_step_has_run(make_bench: Make) -> None:
    bench = make_bench(max_in_flight=2)
    bench.send(add("r", PROMPT, Ask(adapter="a", max_tokens=50)))
    for _ in range(4):
        bench.step()
    bench.run(Retire(adapter("a")), Abort("r", 1))
    assert bench.runner.slots == {}
    assert bench.loaders.forgotten == ["a"]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=9, seed=1, ignore_eos=True, presence_penalty=0.5),
        Sampling(max_tokens=9, seed=1, ignore_eos=True, frequency_penalty=0.5),
        Sampling(max_tokens=9, seed=1, ignore_eos=True, repetition_penalty=1.1),
        Sampling(max_tokens=9, seed=1, ignore_eos=True, logprobs=1, prompt_logprobs=True),
        Sampling(max_tokens=9, seed=1, min_tokens=9),
    ],
)
def test_what_needs_its_last_token_waits_for_it(make_bench: Make, sampling: Sampling) -> None:
    bench = make_bench(max_in_flight=2)
    careful, plain = add("careful", PROMPT, Ask(sampling=sampling)), add("plain", PROMPT)
    bench.run(careful, plain)
    assert bench.tokens("careful") == expected(careful)
    assert bench.tokens("plain") == expected(plain)
    assert bench.runner.num_pending == 7, "the other one doesn't wait"


def test_no_step_of_prompts_comes_between_tokens_that_wait_for_each_other(make_bench: Make) -> None:
    """A chat with penalties can't be in every step; in the others a flood would have all the room."""
    bench = make_bench(max_in_flight=2, num_blocks=600, step_tokens=256)
    penalized = Sampling(max_tokens=40, seed=1, ignore_eos=True, presence_penalty=1.0)
    bench.send(add("chat", PROMPT, Ask(tenant="chat", sampling=penalized)))
    bench.step()
    bench.step()
    before = len(bench.runner.results)
    bench.send(*[add(f"{i}", [i + 2] * 400, Ask(tenant="flood", max_tokens=1)) for i in range(4)])
    while not bench.all_ended():
        bench.step()
    alone = [results for results in bench.runner.results[before:-1] if 0 not in {r.sequence for r in results}]
    assert alone == []
    bench.run()


def test_min_tokens_waits_only_while_it_bans(make_bench: Make) -> None:
    bench = make_bench(max_in_flight=2)
    request = add("r", PROMPT, Ask(sampling=Sampling(max_tokens=12, seed=1, min_tokens=6)))
    bench.run(request)
    assert bench.tokens("r") == expected(request)
    assert bench.runner.num_pending == max(0, len(expected(request)) - 6)


@pytest.mark.parametrize("steps", range(7))
@pytest.mark.parametrize("frame", [Abort("r", 1), StopChoice("r", 1, 0, num_tokens=2), Drain()])
def test_an_end_from_outside_while_in_flight(
    make_bench: Make, steps: int, frame: Abort | StopChoice | Drain
) -> None:
    bench = make_bench(max_in_flight=2)
    bench.send(add("r", PROMPT, Ask(adapter="a", max_tokens=50)))
    for _ in range(steps):
        bench.step()
    bench.send(frame)
    if isinstance(frame, Drain):
        assert bench.loop.run_forever() == 0
    else:
        bench.run()
    assert bench.runner.unfinished == []
    sent = len(bench.tokens("r"))
    if steps or not isinstance(frame, Drain):
        assert bench.ended("r").usage.completion == (min(2, sent) if isinstance(frame, StopChoice) else sent)
    bench.loop.check()


def test_the_context_ends_a_choice_at_the_same_token(make_bench: Make) -> None:
    bench = make_bench(num_blocks=200, max_in_flight=2)
    bench.run(add("r", [3] * 505, Ask(max_tokens=100)))
    assert bench.ended("r").usage == Usage(505, 7, 0)
    assert len([row for row in bench.runner.rows if row[2] == 1]) == 6, "no row past the end of the context"


def test_a_row_that_fails_takes_its_next_one_along(make_bench: Make) -> None:
    bench = make_bench(max_in_flight=2)
    bench.runner.fail_on = {66}
    good = add("good", PROMPT)
    bench.run(good, add("bad", [66, 1, 2], Ask(choices=2)))
    assert bench.ended("bad").outcome is Outcome.CORE_FAILED
    assert bench.ended("bad").usage.completion == 0
    assert bench.tokens("good") == expected(good)


def test_a_preempted_sequence_keeps_the_token_that_was_in_flight(make_bench: Make) -> None:
    bench = make_bench(num_blocks=14, max_in_flight=2)
    requests = [add(str(i), [i + 1, 2, 3, 4, 5], Ask(max_tokens=30)) for i in range(4)]
    bench.run(*requests)
    assert bench.loop._scheduler.counters.preemptions > 0
    for request in requests:
        assert bench.tokens(request.request) == expected(request)
        assert bench.ended(request.request).usage == Usage(5, 30, 0)
    assert bench.stats().prompt_tokens_total == 20
    assert bench.stats().generation_tokens_total == 120


def test_a_sequence_preempted_in_flight_waits_until_its_token_is_known(make_bench: Make) -> None:
    """Though there is room for it at once."""
    bench = make_bench(max_in_flight=2)
    request = add("r", list(range(1, 30)), Ask(adapter="a"))
    bench.send(request)
    for _ in range(3):
        bench.step()
    admission = bench.loop._scheduler._admission
    (sequence,) = admission.running
    assert (sequence.num_in_flight, sequence.num_pending) == (1, 1)
    admission.preempt(sequence)
    bench.step()
    assert admission.running == []
    assert (sequence.num_in_flight, sequence.num_pending) == (0, 0)
    bench.run()
    assert bench.tokens("r") == expected(request)
    assert bench.ended("r").usage == Usage(29, 8, 0)


@pytest.mark.parametrize("max_tokens", [1, 8])
def test_choices_run_though_the_first_one_ended_before_its_prompt_was_named(
    make_bench: Make, max_tokens: int
) -> None:
    """Choice 0 is preempted while its first token is under way, and ends with that token: by its length, or
    since the server found a stop string in it."""
    bench = make_bench(max_in_flight=2)
    request = add("r", list(range(1, 30)), Ask(choices=3, max_tokens=max_tokens))
    bench.send(request)
    bench.step()
    admission = bench.loop._scheduler._admission
    (sequence,) = admission.running
    admission.preempt(sequence)
    bench.step()
    assert len(bench.tokens("r")) == 1
    bench.run(StopChoice("r", 1, 0, num_tokens=1))
    assert [bench.tokens("r", choice) for choice in (1, 2)] == [expected(request, 1), expected(request, 2)]
    assert bench.ended("r").usage == Usage(29, 1 + 2 * max_tokens, 0)


def ends_by_itself(adapter_name: str | None = None) -> AddRequest:
    """A request whose answer reaches the end token by itself, after some tokens."""
    for seed in range(1, 5_000):
        prompt = [seed % 99 + 1, seed // 99 + 1]
        request = add("r", prompt, Ask(adapter=adapter_name, sampling=Sampling(max_tokens=40, seed=1)))
        answer = expected(request)
        if answer[-1] == EOS and len(answer) > 4:
            return request
    raise AssertionError("no such prompt")


# Random workloads


@dataclass(frozen=True)
class Load:
    """Requests by the step they come at, aborts and stop strings by (request, number of its tokens)."""

    requests: list[tuple[int, AddRequest]]
    aborts: dict[str, int] = field(default_factory=dict)  # after so many steps
    stops: dict[str, int] = field(default_factory=dict)  # the stop string is complete at this token


samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 14),
    seed=st.just(1),
    ignore_eos=st.booleans(),
    min_tokens=st.sampled_from([0, 0, 0, 1, 4]),
    stop_token_ids=st.sampled_from([(), (), tuple(range(0, 100, 9))]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    logprobs=st.sampled_from([None, None, 0]),
    prompt_logprobs=st.sampled_from([False, False, False, True]),
)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    requests, aborts, stops = [], {}, {}
    for number in range(draw(st.integers(1, 7))):
        name = str(number)
        stops_at = draw(st.sampled_from([None, None, 1, 3]))
        ask = Ask(
            adapter=draw(st.sampled_from([None, "a", "b", "c"])),
            choices=draw(st.sampled_from([1, 1, 2])),
            tenant=draw(st.sampled_from(["t", "u"])),
            confirm=stops_at is not None,
            sampling=draw(samplings),
        )
        prompt = [draw(st.integers(1, 3))] * draw(st.integers(1, 22))
        requests.append((draw(st.integers(0, 12)), add(name, prompt, ask)))
        if stops_at is not None:
            stops[name] = stops_at
        elif draw(st.integers(0, 4)) == 0:
            aborts[name] = draw(st.integers(1, 25))
    return Load(requests, aborts, stops)


@dataclass
class Served:
    tokens: dict[tuple[str, int], list[int]]
    logprobs: dict[tuple[str, int], list[TokenLogprob]]
    finish: dict[tuple[str, int], FinishReason | None]
    ends: dict[str, tuple[Outcome, Usage]]


def serve(load: Load, bench: Bench) -> Served:
    """Plays a load as the server would, stop strings included."""
    told: set[tuple[str, int]] = set()
    read = 0
    for step in range(2_000):
        bench.send(*[request for at, request in load.requests if at == step])
        bench.send(*[Abort(name, 1) for name, at in load.aborts.items() if at == step])
        busy = bench.step()
        for frame in bench.transport.sent[read:]:
            if isinstance(frame, Tokens) and frame.request in load.stops:
                _stop(frame, load.stops[frame.request], bench, told)
        read = len(bench.transport.sent)
        if step > 25 and not busy and not bench.loop._open and not bench.transport.inbox:
            return _served(bench)
    raise AssertionError("the core did not come to rest")


def _stop(frame: Tokens, at: int, bench: Bench, told: set[tuple[str, int]]) -> None:
    key = (frame.request, frame.choice)
    count = len(bench.tokens(*key))
    if key not in told and (count >= at or frame.finish is not None):
        told.add(key)
        bench.send(StopChoice(frame.request, 1, frame.choice, min(at, count)))


def _served(bench: Bench) -> Served:
    served = Served({}, {}, {}, {})
    for frame in bench.transport.sent:
        if isinstance(frame, Tokens):
            key = (frame.request, frame.choice)
            assert served.finish.get(key) is None, "nothing follows a choice's last frame"
            served.tokens.setdefault(key, []).extend(frame.tokens)
            served.logprobs.setdefault(key, []).extend(frame.logprobs or [])
            served.finish[key] = frame.finish
    for ended in bench.all_ended():
        assert ended.request not in served.ends, "one end each"
        served.ends[ended.request] = (ended.outcome, ended.usage)
    lines = {line.request: (line.outcome, line.prompt, line.completion) for line in bench.lines()}
    assert lines == {name: (o, u.prompt, u.completion) for name, (o, u) in served.ends.items()}
    return served


@settings(max_examples=60, deadline=None)
@given(
    load=loads(),
    num_blocks=st.sampled_from([12, 16, 64]),
    slots=st.sampled_from([(1, 1), (2, 2), (3, 1), (8, 8)]),
)
def test_random_loads_are_served_alike_with_one_and_two_steps_in_flight(
    load: Load, num_blocks: int, slots: tuple[int, int]
) -> None:
    """`slots`: adapters that are there at a time, and in one step."""
    served = []
    for max_in_flight in (1, 2):
        with TemporaryDirectory() as directory:
            bench = Bench(
                Path(directory),
                max_in_flight=max_in_flight,
                num_blocks=num_blocks,
                num_slots=slots[0],
                max_adapters_per_step=slots[1],
                step_tokens=17,
            )
            served.append(serve(load, bench))
            assert bench.runner.unfinished == []
            assert bench.loop._blocks.num_used == 0
            bench.close()
    one, two = served
    for _, request in load.requests:
        for choice in range(request.num_choices):
            _alike(load, request, choice, one, two)
        if request.request not in load.aborts:
            (_, first), (_, second) = one.ends[request.request], two.ends[request.request]
            assert (first.prompt, first.completion) == (second.prompt, second.completion)
    assert {name: end[0] for name, end in one.ends.items() if name not in load.aborts} == {
        name: end[0] for name, end in two.ends.items() if name not in load.aborts
    }


def _alike(load: Load, request: AddRequest, choice: int, one: Served, two: Served) -> None:
    """The same tokens, as far as the end is the request's own: an abort comes after a number of steps."""
    key, answer = (request.request, choice), expected(request, choice)
    for served in (one, two):
        tokens = served.tokens.get(key, [])
        assert tokens == answer[: len(tokens)]
        scored = request.sampling.logprobs is not None
        assert [s.token for s in served.logprobs.get(key, [])] == (tokens if scored else [])
        if request.request not in load.aborts and request.request not in load.stops:
            assert tokens == answer
    if request.request not in load.aborts and request.request not in load.stops:
        assert one.finish[key] == two.finish[key]
