"""Whom room is taken from, and when: for a token that has no block, and for a tenant that runs nothing.

It is taken from the tenant that holds most, of the lowest class there, from whoever has most left to
generate: that one would hold its blocks longest. A tenant's only sequence is taken where all have only one.
"""

from __future__ import annotations

from collections import Counter

from engine.core.admission import Admission
from engine.core.limits import CoreConfig
from engine.core.request import Sequence, State


class Preemption:
    """Decides for `Admission`, which carries it out."""

    def __init__(self, config: CoreConfig, admission: Admission) -> None:
        self._config = config
        self._admission = admission
        self._made_way = float("-inf")  # when sequences were last preempted for a tenant that ran nothing
        self._now = 0.0

    def make_room(self, now: float) -> bool:
        """Each running sequence has a place for its next token, and a tenant that runs nothing and has waited
        too long runs something, where that can be. Returns whether anyone was preempted."""
        self._now = now
        before = self._admission.counters.preemptions
        self._grow_tables()
        is_time = now - self._made_way >= self._config.reserve_after_s
        if is_time and not self._admission.is_over_limit:
            self._make_way()
        return self._admission.counters.preemptions > before

    def _grow_tables(self) -> None:
        """In order of priority, so that those of least priority are left without."""
        admission = self._admission
        growing = [s for s in admission.running if admission.needs_block(s)]
        for sequence in sorted(growing, key=self._priority):
            while sequence.state is State.RUNNING and not admission.can_grow():
                admission.preempt(self._spare() or max(admission.running, key=self._burden))
            if sequence.state is State.RUNNING:
                admission.grow(sequence)

    def _make_way(self) -> None:
        """Admits the first request of each tenant that runs nothing and has waited too long for room, at the
        cost of the tenant that holds most; not more often than in each `reserve_after_s`, so that those who
        are preempted get on between."""
        admission = self._admission
        running = {s.request.add.tenant for s in admission.running}
        late = [s for s in admission.waiting if admission.is_late(s)]
        for sequence in sorted(late, key=self._priority):
            if sequence.request.add.tenant in running:
                continue
            while admission.lacks_room(sequence) and (spare := self._spare()) and self._could_fit(sequence):
                admission.preempt(spare)
                self._made_way = self._now
            if admission.admit(sequence):
                running.add(sequence.request.add.tenant)
            admission.drop_reserve()  # kept for those that are not admitted here, once a step

    def _could_fit(self, sequence: Sequence) -> bool:
        """Whether there is room for it once each tenant runs one sequence only. Blocks that are shared count
        more than once here."""
        largest: dict[str, int] = {}
        total = 0
        for other in self._admission.running:
            total += len(other.blocks)
            tenant = other.request.add.tenant
            largest[tenant] = max(largest.get(tenant, 0), len(other.blocks))
        return self._admission.num_lacking(sequence) <= total - sum(largest.values())

    def _spare(self) -> Sequence | None:
        """Of the tenant that holds most blocks, out of those that run more than one sequence, the one to
        take."""
        blocks: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for sequence in self._admission.running:
            blocks[sequence.request.add.tenant] += len(sequence.blocks)
            count[sequence.request.add.tenant] += 1
        rich = [tenant for tenant in count if count[tenant] > 1]
        if not rich:
            return None
        most = max(rich, key=lambda tenant: blocks[tenant])
        return max((s for s in self._admission.running if s.request.add.tenant == most), key=self._burden)

    def _priority(self, sequence: Sequence) -> tuple[int, int, int]:
        return (*sequence.request.priority(self._now, self._config.aging_s), sequence.choice)

    def _burden(self, sequence: Sequence) -> tuple[int, int, int, int]:
        """Higher is taken first."""
        rank, order = sequence.request.priority(self._now, self._config.aging_s)
        return (rank, sequence.tokens_left, order, sequence.choice)
