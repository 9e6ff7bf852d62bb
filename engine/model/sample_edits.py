"""Changes to logits that name single tokens (bias, penalties, bans), for all rows of a batch at once.

Each kind becomes flat arrays of (row, token, amount), filled on the host, and one indexed operation: a token
stands in a row's part of a kind once, so that nothing is added twice and no order of additions decides a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.core.plan import SamplePlan
from engine.model.upload import Upload

MOST_LOGIT = 1e30
"""Where a penalised logit ends, either way: far beyond any model's, and sums of it are finite."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """One amount for each (row, token)."""

    rows: Tensor  # int64 [n]
    tokens: Tensor  # int64 [n]
    amounts: Tensor  # float32 [n]


@dataclass(frozen=True, slots=True)
class Edits:
    biases: _Edit | None
    repetitions: _Edit | None
    frequencies: _Edit | None
    bans: _Edit | None

    def apply(self, logits: Tensor) -> None:
        """In place, in vLLM's order: bias, repetition, frequency and presence, bans."""
        if (edit := self.biases) is not None:
            logits[edit.rows, edit.tokens] += edit.amounts
        if (edit := self.repetitions) is not None:
            held = logits[edit.rows, edit.tokens]
            # A tiny penalty divides beyond what a float holds, and of two infinities no distribution is made.
            scaled = (held / edit.amounts).where(held > 0, held * edit.amounts)
            logits[edit.rows, edit.tokens] = scaled.clamp(-MOST_LOGIT, MOST_LOGIT)
        if (edit := self.frequencies) is not None:
            logits[edit.rows, edit.tokens] -= edit.amounts
        if (edit := self.bans) is not None:
            logits[edit.rows, edit.tokens] = edit.amounts


def gather_edits(plans: Sequence[SamplePlan], vocab: int, upload: Upload) -> Edits:
    """What `plans` change in their rows. The host's work grows with the tokens they name, not with the
    vocabulary."""
    biases, repetitions, frequencies, bans = _Rows(), _Rows(), _Rows(), _Rows()
    for row, plan in enumerate(plans):
        sampling = plan.sampling
        if sampling.logit_bias:
            held = {token: bias for token, bias in sampling.logit_bias.items() if token < vocab}
            biases.add(row, np.array(list(held), np.int64), np.array(list(held.values()), np.float32))
        if sampling.repetition_penalty != 1.0:
            seen = np.unique(np.array([*plan.prompt, *plan.generated], np.int64))
            repetitions.add(row, seen, np.full(len(seen), sampling.repetition_penalty, np.float32))
        if plan.generated and (sampling.frequency_penalty or sampling.presence_penalty):
            seen, counts = np.unique(np.array(plan.generated, np.int64), return_counts=True)
            amounts = np.float32(sampling.frequency_penalty) * counts.astype(np.float32)
            frequencies.add(row, seen, amounts + np.float32(sampling.presence_penalty))
        if plan.banned:
            banned = np.array(plan.banned, np.int64)
            bans.add(row, banned, np.full(len(banned), -np.inf, np.float32))
    return Edits(biases.sent(upload), repetitions.sent(upload), frequencies.sent(upload), bans.sent(upload))


class _Rows:
    """The parts of one kind, a row after the other."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []

    def add(self, row: int, tokens: NDArray[np.int64], amounts: NDArray[np.float32]) -> None:
        self._parts.append((np.full(len(tokens), row, np.int64), tokens, amounts))

    def sent(self, upload: Upload) -> _Edit | None:
        if not any(len(tokens) for _, tokens, _ in self._parts):
            return None
        rows, tokens, amounts = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        return _Edit(upload.send(rows), upload.send(tokens), upload.send(amounts))
