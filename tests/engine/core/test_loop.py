"""What a request gets from the core: its tokens, its one end, its count and its journal line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.protocol import (
    Abort,
    FinishReason,
    Outcome,
    Prefetch,
    Sampling,
    StopChoice,
    Tier,
    Tokens,
    Usage,
)
from tests.engine.core.fakes import EOS, Ask, Bench, adapter, add, expected

PROMPT = [7, 8, 9, 10, 11, 12]


def frames(bench: Bench, request: str) -> list[Tokens]:
    return [f for f in bench.transport.sent if isinstance(f, Tokens) and f.request == request]


def test_a_request_gets_the_models_tokens_one_terminal_and_one_line(bench: Bench) -> None:
    request = add("r", PROMPT)
    bench.run(request)
    assert bench.tokens("r") == expected(request)
    assert [f.finish for f in frames(bench, "r")] == [None] * 7 + [FinishReason.LENGTH]
    ended = bench.ended("r")
    assert (ended.outcome, ended.usage, ended.tier) == (Outcome.FINISHED, Usage(6, 8, 0), Tier.BASE)
    (line,) = bench.lines()
    assert (line.n, line.request, line.attempt, line.completion, line.outcome) == (
        1,
        "r",
        1,
        8,
        Outcome.FINISHED,
    )


@pytest.mark.parametrize("step_tokens", [17, 20, 64, 256])
def test_chunked_prefill_gives_the_same_tokens_as_a_whole_one(
    make_bench: Callable[..., Bench], step_tokens: int
) -> None:
    requests = [add(str(i), [i + 1] * 90 + [5, 6]) for i in range(3)]
    bench = make_bench(step_tokens=step_tokens, num_blocks=200)
    bench.run(*requests)
    assert [bench.tokens(r.request) for r in requests] == [expected(r) for r in requests]
    assert bench.runner.most_tokens <= step_tokens


def test_many_adapters_and_the_base_share_steps(bench: Bench) -> None:
    names = [None, "a", "b", "c"]
    requests = [add(str(i), PROMPT, Ask(adapter=names[i % 4])) for i in range(12)]
    bench.run(*requests)
    assert [bench.tokens(r.request) for r in requests] == [expected(r) for r in requests]
    assert bench.runner.most_adapters == 3
    assert bench.ended("1").tier is Tier.STORE


def test_preemption_changes_no_token_and_bills_none_twice(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=14)
    requests = [add(str(i), [i + 1, 2, 3, 4, 5], Ask(max_tokens=30)) for i in range(4)]
    bench.run(*requests)
    assert bench.loop._scheduler.counters.preemptions > 0
    for request in requests:
        assert bench.tokens(request.request) == expected(request)
        assert bench.ended(request.request).usage == Usage(5, 30, 0)
    assert bench.stats().prompt_tokens_total == 20
    assert bench.stats().generation_tokens_total == 120


def test_choices_share_the_prompt_and_differ_by_choice(bench: Bench) -> None:
    request = add("r", list(range(1, 18)), Ask(choices=8))
    bench.run(request)
    assert [bench.tokens("r", c) for c in range(8)] == [expected(request, c) for c in range(8)]
    assert bench.ended("r").usage == Usage(prompt=17, completion=64, cached=0)
    prefills = [tokens for _, start, tokens in bench.runner.rows if start < 17]
    assert prefills == [17, 1, 1, 1, 1, 1, 1, 1], "siblings compute only what no full block holds"


def test_a_known_prompt_comes_from_the_cache_and_is_counted_once(bench: Bench) -> None:
    first, second = add("1", list(range(1, 21))), add("2", list(range(1, 21)))
    bench.run(first)
    bench.run(second)
    assert bench.tokens("1") == bench.tokens("2") == expected(first)
    assert bench.ended("1").usage.cached == 0
    assert bench.ended("2").usage.cached == 16, "the last token is always computed"
    stats = bench.stats()
    assert (stats.cache_query_tokens_total, stats.cache_hit_tokens_total) == (40, 16)
    assert stats.prompt_tokens_total == 24


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (Ask(), True),
        (Ask(salt="other"), False),
        (Ask(tenant="other"), False),
        (Ask(adapter="a"), False),
        (Ask(tenant="tenants", salt="alt"), False),
    ],
)
def test_kv_is_shared_only_by_the_same_tenant_salt_and_adapter(
    bench: Bench, other: Ask, shares: bool
) -> None:
    bench.run(add("1", list(range(1, 21))))
    bench.run(add("2", list(range(1, 21)), other))
    assert (bench.ended("2").usage.cached > 0) is shares


def test_two_adapters_never_share_kv_and_one_does(bench: Bench) -> None:
    for name, ask in [("1", "a"), ("2", "b"), ("3", "a")]:
        bench.run(add(name, list(range(1, 21)), Ask(adapter=ask)))
    assert [bench.ended(r).usage.cached for r in "123"] == [0, 0, 16]


@pytest.mark.parametrize("after", range(6))
def test_an_abort_frees_everything_in_the_next_step(bench: Bench, after: int) -> None:
    bench.send(add("r", PROMPT, Ask(adapter="a", choices=3, max_tokens=50)))
    for _ in range(after):
        bench.step()
    bench.send(Abort("r", 1))
    bench.step()
    ended = bench.ended("r")
    assert ended.outcome is Outcome.ABORTED
    assert ended.usage.completion == sum(len(bench.tokens("r", c)) for c in range(3))
    assert bench.loop._blocks.num_used == 0
    assert len(bench.lines()) == 1


def test_aborting_the_unknown_or_the_ended_does_nothing(bench: Bench) -> None:
    bench.run(add("r", PROMPT), Abort("other", 1))
    bench.run(Abort("r", 1), Abort("r", 2))
    assert len(bench.all_ended()) == 1


def test_a_stop_string_clamps_the_count(bench: Bench) -> None:
    bench.send(add("r", PROMPT, Ask(max_tokens=50)))
    for _ in range(6):
        bench.step()
    bench.run(StopChoice("r", 1, 0, num_tokens=3))
    assert bench.ended("r").outcome is Outcome.FINISHED
    assert bench.ended("r").usage == Usage(6, 3, 0)
    assert bench.lines()[0].completion == 3


def test_a_stop_string_in_one_choice_leaves_the_others(bench: Bench) -> None:
    request = add("r", PROMPT, Ask(max_tokens=20, choices=2))
    bench.send(request)
    for _ in range(4):
        bench.step()
    bench.run(StopChoice("r", 1, 0, num_tokens=2))
    assert bench.ended("r").usage.completion == 22
    assert bench.tokens("r", 1) == expected(request, 1)


def test_a_choice_that_ended_by_itself_waits_for_the_servers_count(bench: Bench) -> None:
    bench.send(add("r", PROMPT, Ask(max_tokens=4, confirm=True)))
    for _ in range(8):
        bench.step()
    assert bench.all_ended() == []
    assert bench.loop._blocks.num_used == 0, "nothing is held while it waits"
    bench.run(StopChoice("r", 1, 0, num_tokens=2))
    assert bench.ended("r").usage.completion == 2


def test_a_count_that_is_never_confirmed_stands_after_a_while(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(step_s=0.5)
    bench.run(add("r", PROMPT, Ask(max_tokens=4, confirm=True)))
    assert (bench.ended("r").outcome, bench.ended("r").usage.completion) == (Outcome.FINISHED, 4)


def _prompt_that_ends(min_length: int = 2) -> list[int]:
    """A prompt whose answer reaches the end token by itself, after some tokens."""
    for seed in range(1, 5_000):
        prompt = [seed % 99 + 1, seed // 99 + 1]
        answer = expected(add("r", prompt, Ask(sampling=Sampling(max_tokens=40, seed=1))))
        if answer[-1] == EOS and len(answer) > min_length:
            return prompt
    raise AssertionError("no such prompt")


def test_end_tokens_end_unless_ignored_or_too_early(bench: Bench) -> None:
    prompt = _prompt_that_ends()
    length = len(expected(add("r", prompt, Ask(sampling=Sampling(max_tokens=40, seed=1)))))
    cases = {
        "plain": Sampling(max_tokens=40, seed=1),
        "ignored": Sampling(max_tokens=40, seed=1, ignore_eos=True),
        "early": Sampling(max_tokens=40, seed=1, min_tokens=length + 5),
    }
    requests = [add(name, prompt, Ask(sampling=sampling)) for name, sampling in cases.items()]
    bench.run(*requests)
    for request in requests:
        assert bench.tokens(request.request) == expected(request)
    last = frames(bench, "plain")[-1]
    assert (last.finish, last.stop_token, len(bench.tokens("plain"))) == (FinishReason.STOP, EOS, length)
    assert frames(bench, "ignored")[-1].finish is FinishReason.LENGTH
    assert len(bench.tokens("early")) > length


def test_a_stop_token_id_ends_and_is_named(bench: Bench) -> None:
    stop = expected(add("r", PROMPT))[3]
    request = add(
        "r", PROMPT, Ask(sampling=Sampling(max_tokens=8, seed=1, stop_token_ids=(stop,), ignore_eos=True))
    )
    bench.run(request)
    last = frames(bench, "r")[-1]
    assert (last.finish, last.stop_token) == (FinishReason.STOP, stop)
    assert bench.tokens("r") == expected(request)


def test_the_context_ends_a_choice(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=200)
    bench.run(add("r", [3] * 505, Ask(max_tokens=100)))
    assert bench.ended("r").usage == Usage(505, 7, 0)
    assert frames(bench, "r")[-1].finish is FinishReason.LENGTH


@pytest.mark.parametrize(
    "refused",
    [
        add("r", []),
        add("r", [1, 101]),
        add("r", [1, -1]),
        add("r", [1] * 512),
        add("r", [1] * 300),
        add("r", [1], Ask(max_tokens=300)),
        add("r", [1], Ask(sampling=Sampling(max_tokens=2, seed=1, logit_bias={500: 1.0}))),
    ],
)
def test_what_could_never_be_served_is_refused(bench: Bench, refused: object) -> None:
    bench.run(refused)  # type: ignore[arg-type]
    assert bench.ended("r").outcome is Outcome.REFUSED
    assert bench.ended("r").reason
    assert len(bench.lines()) == 1
    assert bench.runner.plans == []


@pytest.mark.parametrize(
    ("best", "echo", "outcome"),
    [
        (2, True, Outcome.FINISHED),
        (3, True, Outcome.REFUSED),
        (3, False, Outcome.FINISHED),
    ],
)
def test_more_log_probabilities_of_a_prompt_than_a_message_holds_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, best: int, echo: bool, outcome: Outcome
) -> None:
    monkeypatch.setattr("engine.core.intake.MAX_PROMPT_LOGPROBS", 100)
    sampling = Sampling(max_tokens=2, seed=1, logprobs=best, prompt_logprobs=echo)
    bench.run(add("r", [1] * 30, Ask(sampling=sampling)))
    assert bench.ended("r").outcome is outcome


def test_a_full_core_refuses(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_open=2)
    bench.run(*[add(str(i), PROMPT) for i in range(3)])
    assert [bench.ended(str(i)).outcome for i in range(3)] == [Outcome.FINISHED] * 2 + [Outcome.REFUSED]


def test_a_deadline_before_the_first_token_expires_the_request(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(step_s=0.1)
    bench.loaders.automatic = False
    bench.run(
        add("late", PROMPT, Ask(adapter="a", deadline_ms=250)), add("fine", PROMPT, Ask(deadline_ms=250))
    )
    assert bench.ended("late").outcome is Outcome.EXPIRED
    assert bench.ended("fine").outcome is Outcome.FINISHED


def test_a_row_that_fails_fails_its_request_alone(bench: Bench) -> None:
    bench.runner.fail_on = {66}
    good, bad = add("good", PROMPT), add("bad", [66, 1, 2], Ask(choices=2))
    bench.run(good, bad)
    assert bench.ended("bad").outcome is Outcome.CORE_FAILED
    assert bench.ended("bad").reason == "not a number"
    assert bench.tokens("good") == expected(good)


def test_a_row_that_fails_on_an_adapter_is_the_adapters_failure(bench: Bench) -> None:
    """Else its tenant could make a replica look broken to everyone."""
    bench.runner.fail_on = {66}
    good = add("good", PROMPT, Ask(adapter="fine"))
    bench.run(good, add("bad", [66, 1, 2], Ask(adapter="hostile", choices=2)))
    assert bench.ended("bad").outcome is Outcome.NOT_FINITE
    assert bench.ended("bad").reason == "The adapter can't be computed: not a number."
    assert bench.tokens("good") == expected(good)


def test_prompt_logprobs_come_whole_with_the_first_frame_whatever_the_chunks(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(step_tokens=17)
    prompt = list(range(1, 41))
    sampling = Sampling(max_tokens=3, seed=1, logprobs=0, prompt_logprobs=True, ignore_eos=True)
    bench.run(add("warm", prompt))
    bench.run(add("r", prompt, Ask(sampling=sampling, choices=2)))
    first, *rest = frames(bench, "r")
    assert first.choice == 0
    assert first.prompt_logprobs is not None
    assert first.prompt_logprobs[0] is None
    assert [entry.token for entry in first.prompt_logprobs if entry] == prompt[1:]
    assert all(frame.prompt_logprobs is None for frame in rest)
    assert all(frame.logprobs is not None and len(frame.logprobs) == 1 for frame in [first, *rest])
    assert bench.ended("r").usage.cached == 0


def test_an_adapter_that_cannot_be_loaded_fails_its_requests_only(bench: Bench) -> None:
    bench.loaders.failing = {"bad"}
    good = add("good", PROMPT, Ask(adapter="good"))
    bench.run(good, add("bad", PROMPT, Ask(adapter="bad")), add("bad2", PROMPT, Ask(adapter="bad")))
    for name in ("bad", "bad2"):
        assert (bench.ended(name).outcome, bench.ended(name).reason) == (Outcome.ADAPTER_FAILED, "corrupt")
    assert bench.tokens("good") == expected(good)


def test_requests_of_a_loading_adapter_wait_alone(bench: Bench) -> None:
    bench.loaders.automatic = False
    slow, fast = add("slow", PROMPT, Ask(adapter="a")), add("fast", PROMPT)
    bench.send(slow, fast)
    for _ in range(20):
        bench.step()
    assert bench.ended("fast").outcome is Outcome.FINISHED
    assert bench.tokens("slow") == []
    bench.loaders.complete("a")
    bench.run()
    assert bench.tokens("slow") == expected(slow)
    timings = bench.ended("slow").timings
    assert timings.load_ms == pytest.approx(200, abs=20)
    assert timings.load_ms <= timings.queue_ms
    assert timings.ttft_ms is not None
    assert timings.queue_ms <= timings.ttft_ms <= timings.total_ms


def test_a_prefetched_adapter_is_found_in_host_memory_and_then_in_its_slot(bench: Bench) -> None:
    bench.run(Prefetch(adapter("a")))
    bench.step()
    bench.run(add("1", PROMPT, Ask(adapter="a")))
    bench.run(add("2", PROMPT, Ask(adapter="a")))
    assert (bench.ended("1").tier, bench.ended("2").tier) == (Tier.HOST, Tier.DEVICE)


def test_the_same_messages_give_the_same_plans(make_bench: Callable[..., Bench]) -> None:
    plans = []
    for _ in range(2):
        bench = make_bench(num_blocks=24, num_slots=2)
        for i in range(8):
            bench.send(add(str(i), [i + 1] * (3 + 5 * i), Ask(adapter=f"a{i % 3}", choices=1 + i % 2)))
            bench.step()
        bench.run(Abort("3", 1))
        plans.append(bench.runner.plans)
    assert plans[0] == plans[1]


def test_a_request_that_comes_twice_is_served_once(bench: Bench) -> None:
    bench.run(add("r", PROMPT), add("r", PROMPT))
    assert len(bench.all_ended()) == 1
