"""Each sampling setting against its plain meaning, and draws against the distribution they claim."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core.plan import SamplePlan
from engine.core.protocol import Sampling
from engine.model.guard import all_finite
from engine.model.sampler import best_tokens, choose, is_plain, logprobs_of, sample_greedy, uniform

VOCAB = 1000


def plan(
    generated: tuple[int, ...] = (),
    prompt: tuple[int, ...] = (1,),
    banned: tuple[int, ...] = (),
    **settings: Any,
) -> SamplePlan:
    sampling = Sampling(**{"max_tokens": 9, "seed": 7, **settings})
    return SamplePlan(sampling, 0, prompt, generated, banned)


def logits(seed: int = 1, vocab: int = VOCAB) -> Tensor:
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 3


def drawn(row: Tensor, count: int, **settings: Any) -> Counter[int]:
    """`count` draws from one row of logits, each with a seed of its own."""
    plans = [plan(**{"seed": seed, **settings}) for seed in range(count)]
    return Counter(choice.token for choice in choose(row.repeat(count, 1), plans) if choice.token is not None)


def greedy(row: Tensor, **settings: Any) -> int | None:
    return choose(row.unsqueeze(0).clone(), [plan(temperature=0.0, **settings)])[0].token


def test_greedy_is_the_argmax_and_the_lowest_id_wins_a_tie() -> None:
    row = logits()
    row[[700, 300, 950]] = 50.0
    assert greedy(row) == 300
    many = torch.stack([row.roll(-i) for i in range(40)])
    found = [choice.token for choice in choose(many, [plan(temperature=0.0)] * 40)]
    assert found == [300 - i for i in range(40)]


@pytest.mark.parametrize("vocab", [128, 1280, 1024, 1000, 3 * 256])
def test_the_argmax_by_strips_is_the_argmax(vocab: int) -> None:
    rows = torch.stack([logits(seed, vocab).round() for seed in range(60)])  # most have ties
    rows[0], rows[1] = 0.0, -torch.inf
    rows[2, vocab - 1] = 99.0
    assert best_tokens(rows).tolist() == [row.tolist().index(row.max().item()) for row in rows]
    rows[3, 7] = torch.nan  # whose row fails: its token only has to be one
    assert 0 <= best_tokens(rows)[3] < vocab


def test_a_row_that_is_not_finite_fails_alone() -> None:
    rows = torch.stack([logits(1), logits(2), logits(3), logits(1)])
    rows[1, 5], rows[2, 6] = torch.nan, torch.inf
    wanted = rows[0].argmax().item()
    results = choose(rows, [plan(temperature=0.0), plan(), plan(logprobs=2), plan(temperature=0.0)])
    assert [bool(result.error) for result in results] == [False, True, True, False]
    assert [results[0].token, results[3].token] == [wanted, wanted]
    assert results[1].token is None


def test_penalties_equal_their_formulas() -> None:
    """vLLM's: repetition over prompt and answer, by sign; frequency and presence over the answer."""
    row, prompt, answer = logits(vocab=20), (3, 4, 4, 9), (4, 8, 8)  # all of it is told, the penalised too
    row[[3, 4, 8, 9]] = torch.tensor([2.0, -1.5, 1.0, -0.5])
    settings: dict[str, Any] = {"repetition_penalty": 1.7, "frequency_penalty": 0.6, "presence_penalty": -0.4}
    wanted = row.clone()
    for token in set(prompt) | set(answer):
        wanted[token] = wanted[token] / 1.7 if wanted[token] > 0 else wanted[token] * 1.7
    for token, count in Counter(answer).items():
        wanted[token] -= 0.6 * count - 0.4
    told = choose(row.unsqueeze(0).clone(), [plan(answer, prompt, temperature=0.0, logprobs=20, **settings)])[
        0
    ]
    assert told.logprob is not None
    top = wanted.log_softmax(0).topk(20)
    assert [token for token, _ in told.logprob.top] == top.indices.tolist()
    assert [value for _, value in told.logprob.top] == pytest.approx(top.values.tolist(), abs=1e-5)


@pytest.mark.parametrize("penalty", [1e-30, 1e-38, 1e-45, 5e-324])
@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1.0, 2.0])
def test_a_penalty_that_divides_past_every_float_still_gives_a_token(
    penalty: float, temperature: float
) -> None:
    """Infinities would make a distribution of NaN, and its draw a token past the vocabulary."""
    row = logits()
    row[[1, 2, 3]] = torch.tensor([20.0, 15.0, -3.0])
    cuts: tuple[dict[str, Any], ...] = ({}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1})
    for cut in cuts:
        settings: dict[str, Any] = {"repetition_penalty": penalty, "logprobs": 3, **cut}
        (choice,) = choose(
            row.unsqueeze(0).clone(), [plan(prompt=(1, 2, 3), temperature=temperature, **settings)]
        )
        assert choice.token in (1, 2)
        assert choice.logprob is not None
        assert not any(math.isnan(value) for _, value in choice.logprob.top)


def test_no_setting_at_its_edge_makes_anything_but_a_token() -> None:
    """Each value is one that a request may have (adapters/wire.py); a token past the vocabulary would end the
    core with its next step."""
    edges: dict[str, tuple[float, ...]] = {
        "temperature": (0.0, 5e-324, 1e-45, 1e-38, 1.0, 2.0),
        "top_p": (5e-324, 1e-38, 0.5, 1.0),
        "top_k": (0, 1, VOCAB, 2**31 - 1),
        "min_p": (0.0, 5e-324, 1.0),
        "presence_penalty": (-2.0, 0.0, 2.0),
        "frequency_penalty": (-2.0, 0.0, 2.0),
        "repetition_penalty": (5e-324, 1e-38, 1.0, 10.0),
    }
    dice = random.Random(5)
    plans = []
    for number in range(600):
        settings: dict[str, Any] = {name: dice.choice(values) for name, values in edges.items()}
        settings["logit_bias"] = {token: dice.choice((-100.0, 100.0)) for token in range(dice.choice((0, 9)))}
        plans.append(plan((5,) * dice.randint(0, 3), (1, 2), (0, 7), seed=number, logprobs=2, **settings))
    rows = torch.stack([logits(seed) * dice.choice((1e-30, 1.0, 1e30)) for seed in range(len(plans))])
    for choice in choose(rows, plans):
        assert choice.token is not None
        assert 0 <= choice.token < VOCAB
        assert choice.token not in (0, 7)
        assert choice.logprob is not None
        assert not any(math.isnan(value) for _, value in choice.logprob.top)


def test_a_row_that_needs_a_whole_sort_changes_no_other_row() -> None:
    """And costs it nothing: only rows that reach past the candidates are sorted."""
    sharp, flat = logits(1, 5_000) * 2, torch.zeros(5_000)
    cuts: tuple[dict[str, Any], ...] = ({"top_p": 0.9}, {"top_k": 40, "top_p": 0.8}, {"min_p": 0.05})
    for settings in cuts:
        for seed in range(40):
            (alone,) = choose(sharp.unsqueeze(0).clone(), [plan(seed=seed, **settings)])
            crowd = choose(
                torch.stack([flat, sharp]), [plan(top_p=0.9999, temperature=2.0), plan(seed=seed, **settings)]
            )
            assert crowd[1].token == alone.token


def test_a_mixed_batch_is_chosen_as_each_row_alone() -> None:
    """Every kind of row beside every other, some that are not finite among them."""
    settings: dict[str, tuple[Any, ...]] = {
        "temperature": (0.0, 0.0, 0.7, 1.5),
        "top_p": (1.0, 0.9, 0.9999),
        "top_k": (0, 5, 700),
        "min_p": (0.0, 0.02),
        "presence_penalty": (0.0, 0.5),
        "frequency_penalty": (0.0, -0.37),
        "repetition_penalty": (1.0, 1.3, 1e-45),
        "logit_bias": ({}, {3: 2.5, VOCAB + 2: 9.0, 8: -100.0}),
        "logprobs": (None, 0, 3, 20),
    }
    dice = random.Random(11)
    plans = []
    for number in range(120):
        chosen = {name: dice.choice(values) for name, values in settings.items()}
        answer = tuple(dice.randrange(VOCAB) for _ in range(dice.choice((0, 4, 9))))
        plans.append(plan(answer, (1, 5, 5, 8), (2, 2)[: dice.choice((0, 2))], seed=number, **chosen))
    rows = torch.stack([logits(seed) for seed in range(len(plans))])
    rows[7, 30], rows[50, 0], rows[51, VOCAB - 1] = torch.nan, torch.inf, -torch.inf
    crowd = choose(rows.clone(), plans)
    alone = [choose(row.unsqueeze(0).clone(), [one])[0] for row, one in zip(rows, plans, strict=True)]
    assert crowd == alone
    assert [row for row, choice in enumerate(crowd) if choice.error] == [7, 50, 51]
    for choice, one in zip(crowd, plans, strict=True):
        assert choice.error or (choice.logprob is None) == (one.sampling.logprobs is None)


def test_rows_that_need_no_logits_on_the_host_are_plain() -> None:
    assert is_plain(plan(temperature=0.0, top_p=0.5, top_k=3, min_p=0.2))  # which cut draws only
    odd: tuple[dict[str, Any], ...] = (
        {"temperature": 0.1},
        {"logprobs": 0},
        {"logit_bias": {1: 1.0}},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"banned": (1,)},
    )
    for settings in odd:
        assert not is_plain(plan(**{"temperature": 0.0, **settings}))
    rows = torch.stack([logits(1), logits(2), logits(3)])
    rows[1, 5] = torch.nan
    short = sample_greedy(rows.argmax(dim=1), all_finite(rows))
    assert short.read(short.packed.cpu()) == choose(rows, [plan(temperature=0.0)] * 3)


def test_bias_and_bans() -> None:
    row = logits()
    best, second = row.topk(2).indices.tolist()
    assert greedy(row, logit_bias={best: -100.0}) == second
    assert greedy(row, logit_bias={17: 100.0, VOCAB + 5: 100.0}) == 17
    assert greedy(row, banned=(best,)) == second
    assert best not in drawn(row, 300, banned=(best,))


def test_a_draw_is_a_pure_function_of_seed_choice_and_count() -> None:
    row = logits()
    alone = choose(row.unsqueeze(0).clone(), [plan((1, 2), seed=5)])[0].token
    crowd = torch.stack([logits(2), row, logits(3)])
    settings = [plan(seed=1, top_k=3), plan((8, 9), seed=5), plan(seed=3, min_p=0.5)]
    assert choose(crowd, settings)[1].token == alone
    assert len({uniform(5, choice, count) for choice in range(8) for count in range(100)}) == 800
    mean = sum(uniform(seed, 0, 0) for seed in range(4000)) / 4000
    assert mean == pytest.approx(0.5, abs=0.02)
    assert uniform(2**64 - 1, 7, 0) < 1.0


def kept_by(
    row: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, heat: float = 1.0
) -> Tensor:
    """The naive twin: sort, cut, renormalise."""
    probabilities = (row.double() / heat).softmax(0)
    order = sorted(range(len(row)), key=lambda i: (-float(probabilities[i]), i))
    order = [i for i in order if probabilities[i] >= min_p * probabilities[order[0]]]
    order = order[:top_k] if top_k else order
    total, cumulative, kept = float(probabilities[order].sum()), 0.0, []
    for i in order:
        if cumulative >= top_p * total and top_p < 1.0:
            break
        kept.append(i)
        cumulative += float(probabilities[i])
    result = torch.zeros(len(row), dtype=torch.float64)
    result[kept] = probabilities[kept] / probabilities[kept].sum()
    return result


CUTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.01, "temperature": 1.3},
    {"top_p": 0.995, "temperature": 2.0},
    {"top_k": 600, "top_p": 0.9, "temperature": 2.0},
    {"top_k": 700, "temperature": 2.0},
]


@pytest.mark.parametrize("settings", CUTS)
def test_draws_follow_the_distribution(settings: dict[str, Any]) -> None:
    """Chi-square over cells of an expected count of at least 5, at 6 standard deviations; seeds are fixed."""
    row, count = logits(4), 3000
    cuts = {name: value for name, value in settings.items() if name != "temperature"}
    wanted = kept_by(row, heat=settings.get("temperature", 1.0), **cuts)
    found = drawn(row, count, **settings)
    assert all(wanted[token] > 0 for token in found)
    cells = [(found[i], float(wanted[i]) * count) for i in range(VOCAB) if wanted[i] * count >= 5]
    rest = (count - sum(seen for seen, _ in cells), count - sum(expected for _, expected in cells))
    cells += [rest] if rest[1] >= 5 else []
    chi = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = max(len(cells) - 1, 1)
    assert chi < freedom + 6 * (2 * freedom) ** 0.5 + 6


def test_of_equal_tokens_at_the_edge_the_lower_ids_stay() -> None:
    row = torch.zeros(VOCAB)
    row[900] = 2.0
    assert set(drawn(row, 400, top_k=3)) == {0, 1, 900}
    assert set(drawn(row, 50, top_k=1)) == {900}


def test_logprobs_are_sorted_and_counted_as_asked() -> None:
    row = logits()
    results = choose(row.repeat(3, 1), [plan(logprobs=0), plan(logprobs=3, temperature=0.0), plan()])
    first, second = results[0].logprob, results[1].logprob
    assert first is not None
    assert second is not None
    assert first.top == []
    assert first.token == results[0].token
    assert second.top[0] == (second.token, second.logprob)
    assert len(second.top) == 3
    assert results[2].logprob is None
    tied = torch.zeros(1, 50)
    assert [token for token, _ in logprobs_of(tied, [7], 50)[0].top] == list(range(50))
