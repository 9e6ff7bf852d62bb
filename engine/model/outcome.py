"""What a step tells of its rows: which are finite, the tokens chosen and the log-probabilities asked for,
gathered on the device into one tensor, so that one copy brings all of it to the host, and read there once it
has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adapters.wire import MAX_TOP_LOGPROBS
from engine.core.plan import Row, RowResult
from engine.core.protocol import TokenLogprob
from engine.model.guard import NOT_FINITE, bad_rows
from engine.model.sampler import Choice, Sampled, Told, tell
from engine.model.upload import Upload

LOGPROB_ROWS = 64  # rows of prompt logits held at a time: 64 x 150,000 x 4 bytes is 38 MB

Logits = Callable[[Tensor], Tensor]
"""Rows of the residual stream [rows, hidden] → logits float32 [rows, vocab]."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A row's prompt log-probabilities, in pieces; `unknown`: the first token's can't be told."""

    unknown: bool
    pieces: list[Told]


@dataclass(frozen=True, slots=True)
class _Answer:
    sequence: int
    num_tokens: int
    samples: bool
    prompt: _Prompt | None

    def told(self, host: Tensor, at: int) -> tuple[list[TokenLogprob | None], int]:
        """The prompt's log-probabilities, which stand in `host` from `at` on, and where they end."""
        if self.prompt is None:
            return [], at
        told: list[TokenLogprob | None] = [None] if self.prompt.unknown else []
        for piece in self.prompt.pieces:
            count = piece.packed.numel()
            told.extend(piece.read(host[at : at + count].view(piece.packed.shape)))
            at += count
        return told, at


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step's answers, still on the device."""

    packed: (
        Tensor  # int32 [n]: whether each token's row of the residual is finite, then `sampled`, then prompts
    )
    rows: Sequence[_Answer]
    sampled: Sampled | None

    def read(self, host: Tensor) -> list[RowResult]:
        """In row order, from `packed` copied to the host."""
        counts = [row.num_tokens for row in self.rows]
        at = sum(counts)
        bad = bad_rows(host, counts)
        choices: Iterator[Choice] = iter(())
        if self.sampled is not None:
            count = self.sampled.packed.numel()
            choices, at = iter(self.sampled.read(host[at : at + count])), at + count
        results = []
        for row, is_bad in zip(self.rows, bad, strict=True):
            told, at = row.told(host, at)
            choice = next(choices) if row.samples else None
            if is_bad:
                results.append(RowResult(row.sequence, error=NOT_FINITE))
            elif choice is not None:
                results.append(RowResult(row.sequence, choice.token, choice.logprob, told, choice.error))
            elif row.prompt is not None:
                results.append(RowResult(row.sequence, prompt_logprobs=told))
        return results


class Outcomes:
    """Makes the outcome of each step; keeps the last row of a chunk whose next token the next chunk tells."""

    def __init__(self, logits: Logits, most_tails: int) -> None:
        """`most_tails`: a sequence that went away between two chunks leaves its row behind."""
        self._logits = logits
        self._most_tails = most_tails
        self._tails: dict[int, Tensor] = {}

    def of(self, rows: Sequence[Row], residual: Tensor, finite: Tensor, sampled: Sampled | None) -> Outcome:
        """`residual` float32 [num_rows, hidden] and `finite` int32 [num_tokens], of the tokens of the step in
        order (what follows is padding). What is not finite in any layer stays so in the residual, which only
        ever adds. Waits for no device."""
        parts = [finite] if sampled is None else [finite, sampled.packed]
        answers: list[_Answer] = []
        end = 0
        for row in rows:
            start, end = end, end + len(row.tokens)
            prompt = self._prompt(row, residual[start:end]) if row.prompt_logprobs else None
            if prompt is not None:
                parts.extend(piece.packed.flatten() for piece in prompt.pieces)
            answers.append(_Answer(row.sequence, len(row.tokens), row.sample is not None, prompt))
        return Outcome(torch.cat(parts), answers, sampled)

    def _prompt(self, row: Row, residual: Tensor) -> _Prompt:
        """Each with the `MAX_TOP_LOGPROBS` best, since a row doesn't say how many are wanted. A chunk's
        first token is told by the last row of the chunk before, which is kept here between the two
        steps."""
        tail = self._tails.pop(row.sequence, None)
        tokens, before, unknown = list(row.tokens[1:]), residual[:-1], False
        if row.start > 0 and tail is not None:
            tokens, before = list(row.tokens), torch.cat((tail, before))
        elif row.start > 0:
            unknown = True
        if row.sample is None:
            self._keep_tail(row.sequence, residual[-1:])
        upload, pieces = Upload(residual.device), []
        for start in range(0, len(tokens), LOGPROB_ROWS):
            logits = self._logits(before[start : start + LOGPROB_ROWS].clone())
            ids = upload.send(np.array(tokens[start : start + LOGPROB_ROWS], np.int64))
            pieces.append(tell(logits, ids, MAX_TOP_LOGPROBS))
        return _Prompt(unknown, pieces)

    def _keep_tail(self, sequence: int, tail: Tensor) -> None:
        self._tails[sequence] = tail.clone()
        while len(self._tails) > self._most_tails:
            del self._tails[next(iter(self._tails))]
