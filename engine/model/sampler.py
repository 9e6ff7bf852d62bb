"""Chooses each row's next token. A row's choice depends on its own logits and plan alone.

The order follows vLLM: logit bias, penalties, bans; log-probabilities are read here; then temperature,
min_p, top_k and top_p. A draw is the inverse of the cumulative distribution, in order of token id, at a
uniform number that is a pure function of (seed, choice, tokens generated).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core.plan import SamplePlan
from engine.core.protocol import Sampling, TokenLogprob

CANDIDATES = 512
"""Truncation first looks among so many best tokens, and sorts the whole vocabulary only where these don't
suffice."""

MOST_LOGIT = 1e30
"""Where a penalised logit ends, either way: far beyond any model's, and sums of it are finite."""


@dataclass(frozen=True, slots=True)
class Choice:
    token: int | None
    logprob: TokenLogprob | None = None
    error: str = ""


def choose(logits: Tensor, plans: Sequence[SamplePlan]) -> list[Choice]:
    """One choice a row of `logits` (float32 [rows, vocab], changed in place). A row that is not finite
    fails alone."""
    low, high = logits.aminmax(dim=1)
    finite = (torch.isfinite(low) & torch.isfinite(high)).tolist()
    for row, plan in enumerate(plans):
        if finite[row]:
            _shape(logits[row], plan)
        else:
            logits[row] = 0.0
    tokens = logits.argmax(dim=1).tolist()  # the lowest id wins a tie
    drawn = [row for row, plan in enumerate(plans) if finite[row] and plan.sampling.temperature > 0]
    if drawn:
        for row, token in zip(drawn, _draw(logits[drawn], [plans[row] for row in drawn]), strict=True):
            tokens[row] = token
    wanted = [row for row, plan in enumerate(plans) if finite[row] and plan.sampling.logprobs is not None]
    told = dict(zip(wanted, _logprobs(logits, wanted, tokens, plans), strict=True))
    return [
        Choice(tokens[row], told.get(row))
        if finite[row]
        else Choice(None, error="the model's logits are not finite")
        for row in range(len(plans))
    ]


def logprobs_of(logits: Tensor, tokens: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """Log-probability of one token a row, and of the `num_top` best (best first, the lower id first in a
    tie)."""
    logprobs = logits.log_softmax(dim=1)
    chosen = logprobs.gather(1, torch.tensor(tokens, dtype=torch.int64).unsqueeze(1)).squeeze(1).tolist()
    values, ids = logprobs.topk(min(num_top, logits.shape[1]), dim=1)
    tops = [
        sorted(zip(row_ids, row_values, strict=True), key=lambda pair: (-pair[1], pair[0]))
        for row_ids, row_values in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    return [
        TokenLogprob(token, logprob, [(int(i), value) for i, value in top])
        for token, logprob, top in zip(tokens, chosen, tops, strict=True)
    ]


def uniform(seed: int, choice: int, counter: int) -> float:
    """In [0, 1), 53 bits: a hash of (seed, choice, counter), so that no state can be lost or shared."""
    key = seed.to_bytes(8, "little") + choice.to_bytes(4, "little") + counter.to_bytes(8, "little")
    return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def _shape(logits: Tensor, plan: SamplePlan) -> None:
    """Bias, penalties and bans of one row, in place."""
    sampling = plan.sampling
    if sampling.logit_bias:
        ids = [token for token in sampling.logit_bias if token < logits.shape[0]]
        logits[ids] += torch.tensor([sampling.logit_bias[token] for token in ids], dtype=logits.dtype)
    if sampling.repetition_penalty != 1.0:
        seen = torch.unique(torch.tensor([*plan.prompt, *plan.generated], dtype=torch.int64))
        held = logits[seen]
        penalty = sampling.repetition_penalty
        # A tiny penalty divides beyond what a float holds, and of two infinities no distribution is made.
        scaled = torch.where(held > 0, held / penalty, held * penalty)
        logits[seen] = scaled.clamp(-MOST_LOGIT, MOST_LOGIT)
    if plan.generated and (sampling.frequency_penalty or sampling.presence_penalty):
        seen, counts = torch.unique(torch.tensor(plan.generated, dtype=torch.int64), return_counts=True)
        logits[seen] -= sampling.frequency_penalty * counts + sampling.presence_penalty
    if plan.banned:
        logits[list(plan.banned)] = -torch.inf


def _logprobs(
    logits: Tensor, rows: list[int], tokens: Sequence[int], plans: Sequence[SamplePlan]
) -> list[TokenLogprob]:
    if not rows:
        return []
    wanted = [plans[row].sampling.logprobs or 0 for row in rows]
    told = logprobs_of(logits[rows], [tokens[row] for row in rows], max(wanted))
    return [TokenLogprob(t.token, t.logprob, t.top[:k]) for t, k in zip(told, wanted, strict=True)]


def _draw(logits: Tensor, plans: Sequence[SamplePlan]) -> list[int]:
    samplings = [plan.sampling for plan in plans]
    heat = torch.tensor([s.temperature for s in samplings]).clamp_min(1e-5).unsqueeze(1)
    probabilities = ((logits - logits.amax(dim=1, keepdim=True)) / heat).softmax(dim=1)
    cut = [row for row, s in enumerate(samplings) if _truncates(s, logits.shape[1])]
    if cut:
        probabilities[cut] = _truncated(probabilities[cut], [samplings[row] for row in cut])
    cumulative = probabilities.double().cumsum(dim=1)
    uniforms = [uniform(p.sampling.seed, p.choice, len(p.generated)) for p in plans]
    total = cumulative[:, -1:].contiguous()
    target = torch.tensor(uniforms, dtype=torch.float64).unsqueeze(1) * total
    drawn = torch.searchsorted(cumulative, target, right=True)
    last = torch.searchsorted(cumulative, total)  # the last token that has any probability
    drawn_ids: list[int] = torch.minimum(drawn, last).squeeze(1).tolist()
    return drawn_ids


def _truncates(sampling: Sampling, vocab: int) -> bool:
    return 0 < sampling.top_k < vocab or sampling.top_p < 1.0 or sampling.min_p > 0.0


def _truncated(probabilities: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Zero outside what min_p, top_k and top_p keep; of equally likely tokens at the edge the lower ids
    stay."""
    vocab = probabilities.shape[1]
    best = probabilities.topk(min(CANDIDATES, vocab), dim=1).values
    kept, unsure = _num_kept(best, samplings, vocab)
    edge = best.gather(1, kept.unsqueeze(1) - 1)
    if rows := unsure.nonzero().flatten().tolist():  # these alone, so that no row pays for another
        whole = probabilities[rows].sort(dim=1, descending=True).values
        kept[rows], _ = _num_kept(whole, [samplings[row] for row in rows], vocab)
        edge[rows] = whole.gather(1, kept[rows].unsqueeze(1) - 1)
    above = probabilities > edge
    at_edge = probabilities == edge
    room = kept.unsqueeze(1) - above.sum(dim=1, keepdim=True)
    stays = above | (at_edge & (at_edge.cumsum(dim=1) <= room))
    return torch.where(stays, probabilities, 0.0)


def _num_kept(best: Tensor, samplings: Sequence[Sampling], vocab: int) -> tuple[Tensor, Tensor]:
    """How many of the best each row keeps (at least one), and for which rows `best` doesn't reach far enough
    to know."""
    seen = best.shape[1]
    top_k = torch.tensor([s.top_k if 0 < s.top_k < vocab else vocab for s in samplings])
    min_p = torch.tensor([s.min_p for s in samplings]).unsqueeze(1)
    top_p = torch.tensor([s.top_p for s in samplings], dtype=torch.float64).unsqueeze(1)
    likely = (best >= min_p * best[:, :1]).sum(dim=1)
    kept = torch.minimum(likely, top_k)
    within = torch.arange(seen) < kept.unsqueeze(1)
    cumulative = torch.where(within, best, 0.0).double().cumsum(dim=1)
    # What is left after min_p and top_k is the whole that top_p is a share of; where neither cut, that is 1.
    whole = torch.where((kept < seen).unsqueeze(1), cumulative[:, -1:], torch.ones(1, dtype=torch.float64))
    if seen == vocab:
        whole = cumulative[:, -1:]
    before = cumulative - torch.where(within, best, 0.0).double()
    nucleus = ((before < top_p * whole) & within).sum(dim=1)
    final = torch.where(top_p.squeeze(1) < 1.0, nucleus, kept).clamp_min(1)
    unsure = (final >= seen) & (seen < vocab)
    # top_k beyond what was seen, with top_p: the share's whole is unknown.
    unsure |= (kept >= seen) & (top_k < vocab) & (top_k > seen)
    return final, unsure
