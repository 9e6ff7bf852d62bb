"""A row whose numbers went wrong ends its request before it samples, and gives nobody its KV."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.protocol import Outcome, Usage
from tests.engine.core.fakes import Ask, Bench, add, expected

BAD = 77
PROMPT = [*range(1, 25), BAD, *range(26, 50)]  # the second chunk of 16 has it


@pytest.fixture(params=[1, 2])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    """Of one step at a time, and of two in flight."""
    bench = make_bench(step_tokens=17, max_running=8, max_in_flight=request.param)
    bench.runner.poisoned = {BAD}
    return bench


@pytest.mark.parametrize("adapter", [None, "a"])
def test_a_chunk_that_is_not_finite_ends_its_request_and_names_no_block(
    bench: Bench, adapter: str | None
) -> None:
    bench.run(add("bad", PROMPT, Ask(adapter=adapter, choices=2)))
    ended = bench.ended("bad")
    assert ended.outcome is (Outcome.CORE_FAILED if adapter is None else Outcome.NOT_FINITE)
    assert "not finite" in ended.reason
    assert ended.usage == Usage(len(PROMPT), 0, 0)
    assert bench.tokens("bad") == []
    assert bench.loop._blocks.num_in_cache == 4, "the blocks of the chunk before, which was right"
    bench.runner.poisoned = set()
    again = add("again", PROMPT, Ask(adapter=adapter))
    bench.run(again)
    assert bench.ended("again").usage.cached <= 17
    assert bench.tokens("again") == expected(again)


def test_others_of_the_same_step_go_on_and_use_its_blocks(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(step_tokens=40, max_running=8, num_blocks=40, max_in_flight=2)
    bench.runner.poisoned = {BAD}
    good = [add(f"good{i}", [i + 1, 5, 6, 7, 8], Ask(max_tokens=20)) for i in range(4)]
    bad = [add(f"bad{i}", [i + 60, *PROMPT]) for i in range(6)]
    bench.run(*(request for pair in zip(good, bad, strict=False) for request in pair), *bad[4:])
    for request in good:
        assert bench.tokens(request.request) == expected(request)
        assert bench.ended(request.request).outcome is Outcome.FINISHED
    assert {bench.ended(request.request).outcome for request in bad} == {Outcome.CORE_FAILED}


def test_an_answer_that_goes_wrong_half_way_ends_where_it_did(bench: Bench) -> None:
    """What was sampled before it stands and is counted; nothing after it is sent."""
    request = add("r", [3, 4, 5], Ask(max_tokens=30))
    answer = expected(request)
    at = next(i for i in range(2, 30) if answer[i] not in {3, 4, 5, *answer[:i]})
    bench.runner.poisoned = {answer[at]}
    bench.run(request)
    assert bench.tokens("r") == answer[: at + 1]
    assert bench.ended("r").usage.completion == at + 1
