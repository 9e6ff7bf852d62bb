"""Which prompts a step computes, and how much of each.

The best class goes first, and within it the tenant that was served least, a piece at a time, so that tenants
that want more than there is get equal parts over time and within a step. Within a tenant it is class, raised
by one for each `aging_s` of waiting, then first come, first served. Whoever can't run now is skipped.
"""

from __future__ import annotations

import heapq
from collections import deque

from engine.core.admission import Admission
from engine.core.fairness import FairShare
from engine.core.limits import CoreConfig
from engine.core.request import Sequence, State
from engine.core.stretch import OVERDRAFT_TOKENS, Overdraft, StepRoom, is_overdue

LEAST_PIECE = 16
"""Tokens; smaller pieces would share a step out more evenly than anyone can tell."""

Key = tuple[int, float, int, int]


class Prefill:
    """Fills what room a step has left, and charges for it."""

    def __init__(
        self, config: CoreConfig, admission: Admission, fair: FairShare, overdraft: Overdraft
    ) -> None:
        self._config = config
        self._admission = admission
        self._fair = fair
        self._overdraft = overdraft
        self._given: dict[Sequence, int] = {}
        self._begun: set[str] = set()  # tenants that have something in this step
        self._refused: set[Sequence] = set()  # asked once a step: a refusal may keep blocks for it
        self._now = 0.0

    def share(self, room: StepRoom, wanting: list[Sequence], now: float, step: int) -> dict[Sequence, int]:
        """Tokens of each sequence that gets any; those that wait and get some run when it returns."""
        self._given, self._begun, self._refused = {}, set(), set()
        self._now = now
        queues = self._queues(wanting)
        heap = [(self._key(queue[0]), tenant) for tenant, queue in queues.items()]
        heapq.heapify(heap)
        while heap and room.tokens > 0:
            _, tenant = heapq.heappop(heap)
            queue = queues[tenant]
            piece = max(LEAST_PIECE, room.tokens // (2 * len(heap))) if heap else room.tokens
            sequence = queue[0]
            if self._give(room, sequence, piece) < piece:
                queue.popleft()  # it has all that it wanted, or all that fits
            if queue:
                heapq.heappush(heap, (self._key(queue[0]), tenant))
        if room.load.rows == 0:
            self._give_piece(
                room, wanting
            )  # whatever it takes: nobody is held up, and somebody has to get on
        elif self._overdraft.is_due(step):
            late = [s for s in wanting if s not in self._given and self._may_overdraw(s, step)]
            if self._give_piece(room, late):
                self._overdraft.use(step, for_prompts=True)
        return self._given

    def _may_overdraw(self, sequence: Sequence, step: int) -> bool:
        """A proof not before it has waited for long."""
        is_new = self._now - sequence.request.arrived < self._config.aging_s
        return is_overdue(sequence, step) and not (sequence.yields and is_new)

    def _queues(self, wanting: list[Sequence]) -> dict[str, deque[Sequence]]:
        queues: dict[str, deque[Sequence]] = {}
        for sequence in sorted(wanting, key=self._order):
            queues.setdefault(sequence.request.add.tenant, deque()).append(sequence)
        return queues

    def _order(self, sequence: Sequence) -> tuple[int, int, int]:
        return (*sequence.request.priority(self._now, self._config.aging_s), sequence.choice)

    def _key(self, sequence: Sequence) -> Key:
        _, order, choice = self._order(sequence)
        rank = self._fair.rank(sequence, self._now, self._config.aging_s)
        return (rank, self._fair.served(sequence.request.add.tenant), order, choice)

    def _give(self, room: StepRoom, sequence: Sequence, most: int) -> int:
        """Up to `most` more tokens for a sequence. Returns how many it got."""
        most = min(most, sequence.remaining - self._given.get(sequence, 0))
        count = self._fitting(room, sequence, most)
        if count < self._least(sequence, most):
            return 0
        if count > 0 and sequence.state is State.WAITING:
            if not self._admit(sequence):
                return 0
            # What it shares is computed already, and it computes the rest at another position.
            count = self._fitting(room, sequence, min(most, sequence.remaining))
        if count > 0:
            self._take(room, sequence, count)
        return count

    def _least(self, sequence: Sequence, most: int) -> int:
        """What doesn't fill a piece is for a prompt that is under way, of a tenant that has nothing yet in
        this step; it is no reason to begin another."""
        is_first = sequence in self._given or sequence.request.add.tenant not in self._begun
        is_under_way = sequence.state is State.RUNNING and is_first
        return 1 if is_under_way or sequence.yields else min(most, LEAST_PIECE)

    def _admit(self, sequence: Sequence) -> bool:
        if sequence in self._refused or not self._admission.admit(sequence):
            self._refused.add(sequence)
            return False
        return True

    def _fitting(self, room: StepRoom, sequence: Sequence, most: int) -> int:
        given = self._given.get(sequence, 0)
        start, is_first = sequence.computed + given, given == 0
        count = room.fitting(sequence, start, most, starts_row=is_first)
        if (
            count == most
            or sequence.yields
            or self._fair.allowance(sequence.request.add.tenant) < sequence.remaining - given
        ):
            return count
        return max(count, room.fitting_allowed(sequence, start, most, starts_row=is_first))

    def _take(self, room: StepRoom, sequence: Sequence, count: int) -> None:
        given = self._given.get(sequence, 0)
        room.add(sequence, sequence.computed + given, count, starts_row=given == 0)
        self._given[sequence] = given + count
        self._begun.add(sequence.request.add.tenant)
        sequence.rank = self._fair.rank(sequence, self._now, self._config.aging_s)
        self._fair.note_prompt(sequence, self._now)
        self._fair.spend_allowance(sequence.request.add.tenant, count)
        self._fair.charge(sequence, sequence.computed + given + count)

    def _give_piece(self, room: StepRoom, sequences: list[Sequence]) -> bool:
        """Gives the one that has had nothing for longest a small piece, though it doesn't fit."""
        for sequence in sorted(sequences, key=lambda s: (s.ran_in, self._order(s))):
            count = min(OVERDRAFT_TOKENS, room.tokens)
            if count <= 0 or (sequence.state is State.WAITING and not self._admit(sequence)):
                continue
            self._take(room, sequence, min(count, sequence.remaining))
            return True
        return False
