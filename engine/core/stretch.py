"""How far prompts and long contexts may stretch a step, so that the tokens of others keep coming.

The measure is the step in which only those decode whose contexts are short, next to those of the tenant with
the shortest ones: what the length of a request adds to a step, its neighbours suffer from.

| work | fits while the step takes at most |
|---|---|
| decoding on contexts about as long as those of the others | always |
| decoding on a context more than twice as long | `itl_stretch` x the measure |
| prompts of a tenant while others decode | `itl_stretch` x the measure |
| the same, of a prompt that the tenant's allowance covers | `OWN_STRETCH` x the measure |
| prompts of the only tenant that decodes | `OWN_STRETCH` x the measure |
| prompts of proofs while others decode | `YIELDING_STRETCH` x the measure |
| prompts while nobody decodes, or the batch class only | `FULL_STRETCH` x a step full of first tokens |

What fits in no step is not starved: one piece goes over the bound in each `OVERDRAFT_STEPS`, which leaves the
95th percentile of the others alone, and in a step that would be empty otherwise.
"""

from __future__ import annotations

from typing import Final

from engine.core.limits import CoreConfig
from engine.core.protocol import ServiceClass
from engine.core.request import Sequence
from engine.core.step_cost import StepCost, StepLoad

OWN_STRETCH: Final = 4.0
YIELDING_STRETCH: Final = 1.08
FULL_STRETCH: Final = 2.0
"""So that a newcomer waits for no step of seconds, which a full one at the end of a long context may take."""
SHORT_CONTEXT: Final = 256
"""What the shortest contexts are taken for, if they are shorter."""
LONG: Final = 2.0
"""A context is long beyond so many times the shortest."""
OVERDRAFT_STEPS: Final = 32
OVERDRAFT_TOKENS: Final = 16
SOUNDING_STEPS: Final = 64
TARGET_SLACK: Final = 1.1
"""With a target of latency, prompts may stretch a step that lies above it by so much all the same."""


class StepRoom:
    """One step that is being composed: what is in it, and what else fits."""

    def __init__(self, config: CoreConfig, cost: StepCost, decoding: list[Sequence]) -> None:
        self._cost = cost
        protected = [s for s in decoding if s.request.add.service_class is not ServiceClass.BATCH]
        self._protected = {s.request.add.tenant for s in protected}
        self._adapters: set[str] = set()
        self.tokens = config.step_tokens
        self.load = StepLoad()
        self._load_ms: float | None = None  # what it takes; None = not estimated since something was added
        self.short: list[Sequence] = []
        self.long: list[Sequence] = []
        """Those that decode on long contexts, and may have to wait for a step with room for it."""
        longest_short = LONG * _short_context(protected)
        for sequence in decoding:
            is_long = sequence.computed > longest_short and self._disturbs(sequence)
            (self.long if is_long else self.short).append(sequence)
        self._bounds(config)

    @property
    def is_bounded(self) -> bool:
        """Whether somebody decodes whom prompts may only delay so far."""
        return bool(self._protected) and self._own_ms < float("inf")

    def _bounds(self, config: CoreConfig) -> None:
        self._strict_ms = self._own_ms = self._yielding_ms = float("inf")
        if config.itl_stretch is None:
            return
        if not self._protected:
            full = StepLoad()
            full.add(0, config.step_tokens)
            self._strict_ms = self._own_ms = FULL_STRETCH * self._cost.estimate_ms(full)
            self._yielding_ms = self._strict_ms
            return
        measure = StepLoad()
        adapters: dict[str | None, int] = {}
        for sequence in self.short:
            measure.add(sequence.computed, 1)
            adapters[sequence.request.artefact] = sequence.adapter_bytes
        measure.adapter_bytes = sum(adapters.values())
        measure_ms = self._cost.estimate_ms(measure)
        self._strict_ms = config.itl_stretch * measure_ms
        self._own_ms = max(config.itl_stretch, OWN_STRETCH) * measure_ms
        self._yielding_ms = min(config.itl_stretch, YIELDING_STRETCH) * measure_ms
        if config.target_itl_ms is not None:
            most_ms = max(config.target_itl_ms, TARGET_SLACK * measure_ms)
            self._strict_ms = min(self._strict_ms, most_ms)
            self._own_ms = min(self._own_ms, most_ms)

    def _disturbs(self, sequence: Sequence) -> bool:
        """Whether tokens of other tenants come later for its sake."""
        return bool(self._protected - {sequence.request.add.tenant})

    def add(self, sequence: Sequence, start: int, num_tokens: int, *, starts_row: bool = True) -> None:
        self.tokens -= num_tokens
        self.load.add(start, num_tokens, starts_row=starts_row)
        self._load_ms = None
        artefact = sequence.request.artefact
        if artefact is not None and artefact not in self._adapters:
            self._adapters.add(artefact)
            self.load.adapter_bytes += sequence.adapter_bytes

    def fitting_long(self, sequence: Sequence) -> bool:
        """Whether its next token fits beside those of the others."""
        return self._fitting(sequence, sequence.computed, 1, self._strict_ms, starts_row=True) > 0

    def fitting(self, sequence: Sequence, start: int, most: int, *, starts_row: bool = True) -> int:
        """How many tokens of its prompt (at most `most`) fit."""
        bound_ms = self._strict_ms if self._disturbs(sequence) else self._own_ms
        if sequence.yields:
            bound_ms = self._yielding_ms
        return self._fitting(sequence, start, most, bound_ms, starts_row=starts_row)

    def fitting_allowed(self, sequence: Sequence, start: int, most: int, *, starts_row: bool = True) -> int:
        """The same for a prompt that its tenant's allowance covers."""
        return self._fitting(sequence, start, most, self._own_ms, starts_row=starts_row)

    def _fitting(
        self, sequence: Sequence, start: int, most: int, bound_ms: float, *, starts_row: bool
    ) -> int:
        most = min(most, self.tokens)
        if bound_ms == float("inf") or most <= 0:
            return max(0, most)
        if self._load_ms is None:
            self._load_ms = self._cost.estimate_ms(self.load)
        left_ms = bound_ms - self._load_ms
        if sequence.request.artefact not in self._adapters:
            left_ms -= self._cost.adapter_ms(sequence.adapter_bytes)
        return self._cost.fitting_tokens(left_ms, start, most, starts_row=starts_row)


class Sounding:
    """When a step has to do without prompts, so that the measure is seen and not only inferred from steps
    that were composed for it: a measure once thought too large would prove itself right."""

    def __init__(self) -> None:
        self._seen_in = 0

    def is_due(self, step: int) -> bool:
        return step - self._seen_in >= SOUNDING_STEPS

    def seen(self, step: int) -> None:
        self._seen_in = step


class Overdraft:
    """When something may go over the bound: in turn a long context that decodes, and a prompt."""

    def __init__(self) -> None:
        self._used_in = -OVERDRAFT_STEPS
        self.for_prompts = False  # whose turn it is

    def is_due(self, step: int) -> bool:
        return step - self._used_in >= OVERDRAFT_STEPS

    def use(self, step: int, *, for_prompts: bool) -> None:
        self._used_in = step
        self.for_prompts = not for_prompts


def is_overdue(sequence: Sequence, step: int) -> bool:
    """Whether it has had no part in a step for long."""
    return step - sequence.ran_in >= OVERDRAFT_STEPS


def _short_context(decoding: list[Sequence]) -> int:
    """The mean context of the tenant with the shortest ones."""
    contexts: dict[str, list[int]] = {}
    for sequence in decoding:
        contexts.setdefault(sequence.request.add.tenant, []).append(sequence.computed)
    shortest = min((sum(each) // len(each) for each in contexts.values()), default=0)
    return max(SHORT_CONTEXT, shortest)
