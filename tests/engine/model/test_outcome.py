"""What a step tells: in row order, prompts in chunks as whole, and a row that is not finite alone without
answer."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, Row, RowResult, SamplePlan
from engine.core.protocol import Sampling, TokenLogprob
from engine.model.guard import all_finite
from engine.model.outcome import LOGPROB_ROWS, Outcomes
from engine.model.sampler import logprobs_of, sample

HIDDEN, VOCAB, LENGTH = 8, 50, 3 * LOGPROB_ROWS // 2


def eighths(seed: int, *shape: int) -> Tensor:
    """Numbers whose products and sums are exact in float32, in whatever order."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 8).round() / 8


HEAD, RESIDUAL = eighths(1, HIDDEN, VOCAB), eighths(2, LENGTH, HIDDEN)
TOKENS = [i * 7 % VOCAB for i in range(LENGTH)]
PLAN = SamplePlan(Sampling(max_tokens=9, seed=0, temperature=0.0, logprobs=2), 0, TOKENS, ())


def logits(residual: Tensor) -> Tensor:
    return residual @ HEAD


def row(sequence: int, start: int, end: int, *, told: bool = True) -> Row:
    sample_plan = PLAN if end == LENGTH else None
    return Row(sequence, TOKENS[start:end], start, [], BASE_SLOT, sample_plan, prompt_logprobs=told)


def results(outcomes: Outcomes, *rows: Row, residual: Tensor | None = None) -> list[RowResult]:
    parts = [RESIDUAL[r.start : r.start + len(r.tokens)] for r in rows]
    residual = torch.cat(parts) if residual is None else residual
    ends = torch.tensor([len(part) for part in parts]).cumsum(0) - 1
    at = [int(end) for end, r in zip(ends, rows, strict=True) if r.sample]
    plans = [r.sample for r in rows if r.sample]
    sampled = sample(logits(residual[at]), plans) if plans else None
    outcome = outcomes.of(rows, residual, all_finite(residual).int(), sampled)
    return outcome.read(outcome.packed.clone())


def test_prompt_logprobs_are_told_by_the_row_before_each_token() -> None:
    [whole] = results(Outcomes(logits, 4), row(0, 0, LENGTH))
    assert list(whole.prompt_logprobs) == logprobs_of(logits(RESIDUAL[:-1]), TOKENS[1:], 20)
    assert whole.token == logits(RESIDUAL[-1:]).argmax()
    assert whole.logprob is not None
    assert len(whole.logprob.top) == 2


def test_chunks_tell_what_the_whole_tells() -> None:
    outcomes = Outcomes(logits, 4)
    [whole] = results(outcomes, row(0, 0, LENGTH))
    told: list[TokenLogprob | None] = []
    for start, end in ((0, 1), (1, 70), (70, LENGTH)):
        beside, chunk = results(outcomes, row(9, 0, LENGTH, told=False), row(1, start, end))
        assert beside == RowResult(9, whole.token, whole.logprob, [])
        told += chunk.prompt_logprobs
    assert told == list(whole.prompt_logprobs)
    assert results(outcomes, row(2, 0, 5, told=False)) == []  # asks for nothing


def test_a_first_token_whose_row_before_is_gone_is_unknown() -> None:
    outcomes = Outcomes(logits, most_tails=1)
    results(outcomes, row(1, 0, 3), row(2, 0, 3))
    [kept] = results(outcomes, row(2, 3, 5))
    [lost] = results(outcomes, row(1, 3, 5))
    assert [one is None for one in lost.prompt_logprobs] == [True, False]
    assert [one is None for one in kept.prompt_logprobs] == [False, False]


def test_a_row_that_is_not_finite_fails_alone_and_its_neighbours_keep_their_answers() -> None:
    rows = row(1, 0, LENGTH), row(2, 0, 4), row(3, 0, LENGTH)
    good = results(Outcomes(logits, 4), *rows)
    residual = torch.cat([RESIDUAL, RESIDUAL[:4], RESIDUAL])
    residual[LENGTH + 1, 3] = torch.inf  # in the middle of a row that does not even sample
    first, bad, last = results(Outcomes(logits, 4), *rows, residual=residual)
    assert "finite" in bad.error
    assert not bad.prompt_logprobs
    assert [first, last] == [good[0], good[2]]
