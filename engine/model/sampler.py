"""Chooses each row's next token. A row's choice depends on its own logits and plan alone.

The order follows vLLM: logit bias, penalties, bans; log-probabilities are read here; then temperature,
min_p, top_k and top_p. A draw is the inverse of the cumulative distribution, in order of token id, at a
uniform number that is a pure function of (seed, choice, tokens generated).

All rows are chosen together by the same few operations, and nothing waits for the device: `sample` leaves the
tokens there (the next step may read them) with all that the host is to be told in one tensor, which
`Sampled.read` takes apart once it was copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adapters.wire import MAX_TOP_LOGPROBS
from engine.core.plan import SamplePlan
from engine.core.protocol import Sampling, TokenLogprob
from engine.model.guard import all_finite
from engine.model.sample_edits import gather_edits
from engine.model.truncation import truncated, truncates
from engine.model.upload import Upload

NOT_FINITE = "the model's logits are not finite"
COOLEST = 1e-5
"""A temperature below divides logits beyond what a float holds; the draw is the argmax long before."""


@dataclass(frozen=True, slots=True)
class Choice:
    token: int | None
    logprob: TokenLogprob | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """Log-probabilities on the device, and how to read them: one token and the best few of each row."""

    packed: Tensor  # int32 [rows, 2 + 2 * num_top]: id, its log-probability, best ids, theirs (float32 bits)
    num_top: int

    def read(self, host: Tensor) -> list[TokenLogprob]:
        """From `packed`, copied to the host: the best first, the lower id first in a tie."""
        ids, values, top = host.numpy(), host.view(torch.float32).numpy(), 2 + self.num_top
        return [
            TokenLogprob(
                int(row_ids[0]),
                float(row_values[1]),
                sorted(
                    zip(row_ids[2:top].tolist(), row_values[top:].tolist(), strict=True),
                    key=lambda pair: (-pair[1], pair[0]),
                ),
            )
            for row_ids, row_values in zip(ids, values, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The choices of a batch on the device."""

    tokens: Tensor  # int64 [rows]; a row that is not finite has one too, of no meaning
    packed: Tensor  # int32 [n]: tokens, whether finite, then `told`
    told: Told | None
    wanted: Sequence[tuple[int, int]]  # (row, number of best tokens) of the rows of `told`

    def read(self, host: Tensor) -> list[Choice]:
        """From `packed`, copied to the host."""
        rows = self.tokens.shape[0]
        tokens, finite, rest = host[:rows].tolist(), host[rows : 2 * rows].tolist(), host[2 * rows :]
        logprobs: dict[int, TokenLogprob] = {}
        if self.told is not None:
            all_told = self.told.read(rest.view(self.told.packed.shape))
            for (row, num_top), one in zip(self.wanted, all_told, strict=True):
                logprobs[row] = TokenLogprob(one.token, one.logprob, one.top[:num_top])
        return [
            Choice(token, logprobs.get(row)) if fine else Choice(None, error=NOT_FINITE)
            for row, (token, fine) in enumerate(zip(tokens, finite, strict=True))
        ]


def choose(logits: Tensor, plans: Sequence[SamplePlan]) -> list[Choice]:
    """One choice a row of `logits` (float32 [rows, vocab], changed in place). A row that is not finite
    fails alone."""
    sampled = sample(logits, plans)
    return sampled.read(sampled.packed.cpu())


def sample(logits: Tensor, plans: Sequence[SamplePlan]) -> Sampled:
    """`choose` without waiting for the device that holds `logits`."""
    vocab, upload = logits.shape[1], Upload(logits.device)
    finite = all_finite(logits)
    gather_edits(plans, vocab, upload).apply(logits)
    drawn = [row for row, plan in enumerate(plans) if plan.sampling.temperature > 0]
    if len(drawn) == len(plans):
        tokens = _draw(logits, plans, upload)
    else:
        tokens = best_tokens(logits)
        if drawn:
            rows = upload.send(np.array(drawn, np.int64))
            tokens[rows] = _draw(logits[rows], [plans[row] for row in drawn], upload)
    return _packed(logits, tokens, finite, plans, upload)


def sample_greedy(tokens: Tensor, finite: Tensor) -> Sampled:
    """From the argmax of rows whose plans are all plain (`is_plain`)."""
    return Sampled(tokens, torch.cat((tokens.int(), finite.int())), None, ())


def is_plain(plan: SamplePlan) -> bool:
    """Whether the row's choice is the argmax of its logits as they are, and nothing more is asked."""
    s = plan.sampling
    return (
        s.temperature <= 0
        and s.logprobs is None
        and not s.logit_bias
        and s.repetition_penalty == 1.0
        and not s.frequency_penalty
        and not s.presence_penalty
        and not plan.banned
    )


def best_tokens(logits: Tensor) -> Tensor:
    """int64 [rows]: the argmax, the lowest id of equal ones. On a CPU in two stages, by strips of the
    vocabulary: torch's own looks at one number at a time there, and takes eight times as long."""
    rows, vocab = logits.shape
    strip = next((size for size in (512, 256, 128) if vocab % size == 0), vocab)
    if logits.device.type != "cpu" or strip == vocab:
        return logits.argmax(dim=1)
    strips = logits.reshape(rows, -1, strip)
    best = strips.amax(dim=2).argmax(dim=1)
    return best * strip + strips[torch.arange(rows), best].argmax(dim=1)


def logprobs_of(logits: Tensor, tokens: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """Log-probability of one token a row, and of the `num_top` best (best first, the lower id first in a
    tie)."""
    told = tell(logits, Upload(logits.device).send(np.array(tokens, np.int64)), num_top)
    return told.read(told.packed.cpu())


def tell(logits: Tensor, tokens: Tensor, num_top: int) -> Told:
    """`logprobs_of` without waiting for the device; `tokens` int64 [rows]."""
    logprobs = logits.log_softmax(dim=1)
    chosen = logprobs.gather(1, tokens.unsqueeze(1))
    num_top = min(num_top, logits.shape[1])
    values, ids = logprobs.topk(num_top, dim=1)
    parts = (tokens.unsqueeze(1).int(), _bits(chosen), ids.int(), _bits(values))
    return Told(torch.cat(parts, dim=1), num_top)


def uniform(seed: int, choice: int, counter: int) -> float:
    """In [0, 1), 53 bits: a hash of (seed, choice, counter), so that no state can be lost or shared."""
    key = seed.to_bytes(8, "little") + choice.to_bytes(4, "little") + counter.to_bytes(8, "little")
    return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def _draw(logits: Tensor, plans: Sequence[SamplePlan], upload: Upload) -> Tensor:
    """int64 [rows]."""
    samplings = [plan.sampling for plan in plans]
    heat = _column(upload, [max(s.temperature, COOLEST) for s in samplings], np.float32)
    probabilities = ((logits - logits.amax(dim=1, keepdim=True)) / heat).softmax(dim=1)
    if cut := [row for row, s in enumerate(samplings) if truncates(s, logits.shape[1])]:
        probabilities = _cut(probabilities, cut, samplings, upload)
    cumulative = probabilities.double().cumsum(dim=1)
    total = cumulative[:, -1:].contiguous()
    uniforms = [uniform(p.sampling.seed, p.choice, p.counter) for p in plans]
    target = _column(upload, uniforms, np.float64) * total
    drawn = torch.searchsorted(cumulative, target, right=True)
    last = torch.searchsorted(cumulative, total)  # the last token that has any probability
    # Of logits that are not finite no order is sure: their token only has to be one.
    return torch.minimum(drawn, last).squeeze(1).clamp_max(logits.shape[1] - 1)


def _cut(probabilities: Tensor, cut: list[int], samplings: Sequence[Sampling], upload: Upload) -> Tensor:
    if len(cut) == len(samplings):
        return truncated(probabilities, samplings, upload)
    rows = upload.send(np.array(cut, np.int64))
    probabilities[rows] = truncated(probabilities[rows], [samplings[row] for row in cut], upload)
    return probabilities


def _packed(
    logits: Tensor, tokens: Tensor, finite: Tensor, plans: Sequence[SamplePlan], upload: Upload
) -> Sampled:
    wanted = [(row, n) for row, plan in enumerate(plans) if (n := plan.sampling.logprobs) is not None]
    parts = [tokens.int(), finite.int()]
    told = None
    if wanted:
        rows = upload.send(np.array([row for row, _ in wanted], np.int64))
        # Always as many: which of equal tokens are among the best must not depend on what other rows ask.
        told = tell(logits[rows], tokens[rows], MAX_TOP_LOGPROBS)
        parts.append(told.packed.flatten())
    return Sampled(tokens, torch.cat(parts), told, wanted)


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


def _column(upload: Upload, values: Sequence[float], dtype: type[np.floating]) -> Tensor:
    return upload.send(np.array(values, dtype)).unsqueeze(1)
