"""A request (one attempt) and its sequences (one for each choice), with what they have reached so far.

A sequence has no prefill or decode phase: `total` tokens are there, the KV of the first `computed` is in its
blocks, and scheduling lets the second catch up with the first. Once it has, a token is sampled.

`computed` moves when a step is submitted, since a later step finds its KV; all else that a step does (tokens,
names of blocks, counts) happens when its results are applied. Between the two the token that it samples is
pending: it counts in `total` if the next step may compute it unseen (`runs_ahead`), else the sequence waits.
"""

from __future__ import annotations

from collections.abc import Sequence as TokenIds
from enum import Enum
from typing import Final

from engine.core.plan import BASE_SLOT, PENDING_TOKEN
from engine.core.prefix import BlockKey, extend_key, root_key
from engine.core.protocol import (
    AddRequest,
    FinishReason,
    Outcome,
    ServiceClass,
    Tier,
    Timings,
    TokenLogprob,
    Usage,
)

CLASS_RANK: Final = {ServiceClass.INTERACTIVE: 0, ServiceClass.STANDARD: 1, ServiceClass.BATCH: 2}


class State(Enum):
    WAITING = "waiting"  # holds no blocks, no slot
    RUNNING = "running"  # holds blocks and, with an adapter, a pin on its slot
    FINISHED = "finished"  # holds nothing


class Sequence:
    """One choice of a request."""

    def __init__(self, number: int, choice: int, request: Request) -> None:
        self.number = number
        self.choice = choice
        self.request = request
        self.state = State.WAITING
        self.generated: list[int] = []
        self.computed = 0
        self.num_in_flight = 0  # rows of it in submitted steps, whose results aren't applied yet
        self.num_pending = 0  # tokens that those rows sample
        self.runs_ahead = False  # whether its newest pending token may be computed before it is known
        self.blocks: list[int] = []
        self.slot = BASE_SLOT
        self.adapter_bytes = 0  # of the adapter in the slot
        self.yields = request.add.yields
        self.rank = CLASS_RANK[request.add.service_class]  # lower goes first; waiting betters it
        self.ran_in = 0  # the scheduler's step in which it last had a part
        self.num_charged = 0  # tokens that its tenant was charged for
        self.num_published = 0  # blocks of this table that were named, or taken by name
        self.blocked_since: float | None = None  # when it first could not be admitted for want of room
        self.confirmed = not request.add.confirm_choices
        self._keys: list[BlockKey] = []  # of the blocks after those that the prompt fills

    @property
    def num_known(self) -> int:
        """Tokens known here."""
        return len(self.request.prompt) + len(self.generated)

    @property
    def total(self) -> int:
        """Tokens known, and those pending that can be computed unseen."""
        known = len(self.request.prompt) + len(self.generated)
        return known + self.num_pending if self.runs_ahead else known

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next can be sampled."""
        return self.total - self.computed

    @property
    def needs_newest(self) -> bool:
        """Whether it can't go on before its newest pending token is known."""
        return self.num_pending > 0 and self.remaining == 0 and self.tokens_left > self.num_pending

    @property
    def tokens_left(self) -> int:
        """Tokens it may still generate."""
        return self.request.add.sampling.max_tokens - len(self.generated)

    @property
    def owes_prompt_logprobs(self) -> bool:
        """While choice 0 computes a prompt whose log-probabilities were asked for."""
        return self.choice == 0 and self.request.prompt_logprobs is not None and not self.generated

    def tokens(self, start: int, stop: int) -> TokenIds[int]:
        """Token ids from position `start` up to `stop`; of what isn't known yet, `PENDING_TOKEN`."""
        split = len(self.request.prompt)
        if stop <= split:
            return self.request.prompt[start:stop]
        ahead = stop - split - len(self.generated)
        if ahead > 0:
            pending = [PENDING_TOKEN] * min(ahead, stop - start)
            return [*self.tokens(start, stop - len(pending)), *pending]
        if start >= split:
            return self.generated[start - split : stop - split]
        return [*self.request.prompt[start:], *self.generated[: stop - split]]

    def keys(self, count: int, block_size: int) -> list[BlockKey]:
        """Names of its first `count` blocks, all of whose tokens are known."""
        named = self.request.prompt_keys(count, block_size)
        first = len(named)
        for index in range(first + len(self._keys), count):
            start = index * block_size
            parent = self._keys[-1] if self._keys else named[-1] if named else self.request.root
            self._keys.append(extend_key(parent, self.tokens(start, start + block_size)))
        return [*named, *self._keys[: count - first]]


class Request:
    """One attempt at one request, from `AddRequest` to its one `Ended`."""

    def __init__(self, add: AddRequest, base_digest: str, first_number: int, arrived: float) -> None:
        self.add = add
        self.prompt = add.prompt
        self.arrived = arrived
        self.artefact = None if add.adapter is None else add.adapter.artefact
        self.root = root_key(base_digest, self.artefact, add.tenant, add.salt)
        self._keys: list[BlockKey] = []  # of the blocks that the prompt fills, the same for all choices
        self.order = first_number  # arrival order; numbers only grow
        self.sequences = [Sequence(first_number + i, i, self) for i in range(add.num_choices)]
        self.outcome: Outcome | None = None
        self.reason = ""
        self.tier: Tier | None = Tier.BASE if add.adapter is None else None  # None until its load has ended
        self.load_ms = 0.0
        self.not_finite = False
        self.run_ms = 0.0  # of a request that yields
        self.cached: int | None = None  # prompt tokens from the cache at first admission
        self.prompt_computed = False
        self.num_prompt_counted = 0  # prompt tokens already counted as computed or cached
        self.prompt_logprobs: list[TokenLogprob | None] | None = (
            [None] * len(add.prompt) if add.sampling.prompt_logprobs else None
        )
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.confirm_by: float | None = None
        """When a request whose choices have all ended stops waiting for the server to confirm their
        counts."""

    @property
    def name(self) -> tuple[str, int]:
        return (self.add.request, self.add.attempt)

    @property
    def deadline(self) -> float | None:
        return None if self.add.deadline_ms is None else self.arrived + self.add.deadline_ms / 1000

    @property
    def shares_soon(self) -> bool:
        """Whether choice 0 is about to name the prompt's blocks, for the other choices to share. It doesn't
        if it ends first: its first token may be its last, and become known after it was preempted."""
        return not self.prompt_computed and self.sequences[0].state is not State.FINISHED

    def prompt_keys(self, count: int, block_size: int) -> list[BlockKey]:
        """Names of its first `count` blocks, or of as many as the prompt fills."""
        count = min(count, len(self.prompt) // block_size)
        for index in range(len(self._keys), count):
            parent = self._keys[-1] if self._keys else self.root
            start = index * block_size
            self._keys.append(extend_key(parent, self.prompt[start : start + block_size]))
        return self._keys[:count]

    def priority(self, now: float, aging_s: float) -> tuple[int, int]:
        """Lower goes first: class, raised by one for each `aging_s` since arrival, then arrival."""
        rank = CLASS_RANK[self.add.service_class] - int((now - self.arrived) / aging_s)
        return (max(0, rank), self.order)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Fixes the one outcome."""
        assert self.outcome is None, "a request ends once"
        self.outcome = outcome
        self.reason = reason

    @property
    def usage(self) -> Usage:
        completion = sum(len(sequence.generated) for sequence in self.sequences)
        return Usage(prompt=len(self.prompt), completion=completion, cached=self.cached or 0)

    def timings(self, now: float) -> Timings:
        scheduled = now if self.first_scheduled is None else self.first_scheduled
        queue_ms = _ms(scheduled - self.arrived)
        return Timings(
            queue_ms=queue_ms,
            load_ms=min(round(self.load_ms, 3), queue_ms),
            ttft_ms=None if self.first_token is None else _ms(self.first_token - self.arrived),
            total_ms=_ms(now - self.arrived),
        )


class Finish:
    """Decides whether a new token ends its choice."""

    def __init__(self, eos_token_ids: tuple[int, ...], max_model_len: int) -> None:
        self._eos = eos_token_ids
        self._max_model_len = max_model_len

    def end_tokens(self, sequence: Sequence) -> tuple[int, ...]:
        """Tokens that end this choice."""
        sampling = sequence.request.add.sampling
        if sampling.ignore_eos:
            return sampling.stop_token_ids
        return (*self._eos, *sampling.stop_token_ids) if sampling.stop_token_ids else self._eos

    def banned(self, sequence: Sequence) -> tuple[int, ...]:
        """Tokens that must not be sampled next."""
        count = len(sequence.generated) + sequence.num_pending
        return self.end_tokens(sequence) if count < sequence.request.add.sampling.min_tokens else ()

    def may_run_ahead(self, sequence: Sequence) -> bool:
        """Whether the row after the one that samples its newest pending token can be planned now: nothing in
        it but that token depends on it, and it doesn't end the choice by its number."""
        sampling, count = sequence.request.add.sampling, len(sequence.generated) + sequence.num_pending
        if sampling.has_penalties or sampling.prompt_logprobs or count < sampling.min_tokens:
            return False
        return count < sampling.max_tokens and len(sequence.request.prompt) + count < self._max_model_len

    def reason(self, sequence: Sequence) -> FinishReason | None:
        """Why the choice ends with its newest token, or None."""
        if sequence.generated[-1] in self.end_tokens(sequence):
            return FinishReason.STOP
        if sequence.tokens_left <= 0 or sequence.num_known >= self._max_model_len:
            return FinishReason.LENGTH
        return None


def _ms(seconds: float) -> float:
    return round(max(0.0, seconds) * 1000, 3)
