"""Who waits and who runs, and the blocks and slots that running takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import KvStore
from engine.core.fairness import FairShare
from engine.core.limits import NEWCOMER_PART, CoreConfig
from engine.core.plan import BASE_SLOT
from engine.core.request import Request, Sequence, State
from engine.core.running_limit import RunningLimit


@dataclass(slots=True)
class SchedulerCounters:
    cache_query_tokens: int = 0
    cache_hit_tokens: int = 0
    preemptions: int = 0


class Admission:
    """Owns the lists of sequences and their block tables (the blocks themselves are the store's)."""

    def __init__(
        self,
        config: CoreConfig,
        store: KvStore,
        adapters: AdapterPool,
        fair: FairShare,
    ) -> None:
        self._config = config
        self._store = store
        self._adapters = adapters
        self._fair = fair
        self._now = 0.0
        self._reserved: dict[Sequence, int] = {}  # blocks kept in this step for those that wait, as asked
        self._held: Counter[str] = Counter()  # blocks, by tenant
        self._runs: Counter[str] = Counter()  # sequences, by tenant
        self._lingering: set[Sequence] = set()  # run no more, but a submitted step still uses their slots
        self.limit = RunningLimit(config.max_running, config.target_itl_ms)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.counters = SchedulerCounters()

    def begin_step(self, now: float) -> None:
        self._now = now
        self.drop_reserve()
        self._held.clear()
        for sequence in self.running:
            self._held[sequence.request.add.tenant] += len(sequence.blocks)
        if self._is_full:
            for sequence in self.waiting:
                if self._is_full_for(sequence):
                    self._note_blocked(sequence)

    def drop_reserve(self) -> None:
        """Who lacks blocks in this step asks again from here on."""
        self._reserved.clear()

    def remove(self, sequence: Sequence) -> None:
        """Frees what a sequence holds; it won't run again."""
        if sequence.state is State.RUNNING:
            self._stop(sequence)
        elif sequence.state is State.WAITING:
            self.waiting.remove(sequence)
            self._stop_waiting_for_slot(sequence)
        sequence.state = State.FINISHED

    def preempt(self, sequence: Sequence) -> None:
        """Takes everything from a running sequence; it will compute its tokens again, and bill none twice."""
        self._stop(sequence)
        sequence.computed = 0
        sequence.runs_ahead = False
        sequence.state = State.WAITING
        self.waiting.append(sequence)
        self.counters.preemptions += 1

    def note_applied(self, sequence: Sequence) -> None:
        """A submitted row of it has run. If the sequence has stopped meanwhile, its slot was kept for that
        row."""
        sequence.num_in_flight -= 1
        if sequence in self._lingering and sequence.num_in_flight == 0:
            self._lingering.remove(sequence)
            self._unpin(sequence)

    def pins(self) -> Counter[str]:
        """How many sequences hold each adapter's slot."""
        holders = [*self.running, *self._lingering]
        return Counter(s.request.artefact for s in holders if s.request.artefact is not None)

    # What a sequence needs to run

    @property
    def is_over_limit(self) -> bool:
        """Since the limit fell; nobody is preempted for that."""
        return len(self.running) > self._most

    def admissible(self) -> list[Sequence]:
        """Those that wait and have a place in this step, if they have all else: when the limit is reached,
        of tenants that run next to nothing only."""
        if not self._is_full:
            return self.waiting
        if len(self.running) >= self._most:
            return []
        return [sequence for sequence in self.waiting if not self._is_full_for(sequence)]

    def admit(self, sequence: Sequence) -> bool:
        """Gives a waiting sequence blocks for all its known tokens, and a slot, or leaves it as it is."""
        if self._is_full_for(sequence):
            self._note_blocked(sequence)
            return False
        if not self._is_ready(sequence):
            return False
        shared = self._match(sequence)
        if not self._has_blocks(sequence, shared):
            return False
        self._place(sequence, shared)
        return True

    def could_admit(self, sequence: Sequence) -> bool:
        """The same without admitting it, since it may not be its turn. It counts as asked: what it has lacked
        for too long is kept until its turn comes."""
        if self._is_full_for(sequence) or not self._is_ready(sequence):
            return False
        return self._has_blocks(sequence, self._match(sequence))

    def lacks_room(self, sequence: Sequence) -> bool:
        """Whether nothing but room keeps a sequence from running."""
        if not self._is_ready(sequence):
            return False
        return self._is_full_for(sequence) or self.num_lacking(sequence) > 0

    def num_lacking(self, sequence: Sequence) -> int:
        """Blocks that would have to become free before it can run."""
        return self._num_lacking(sequence, self._match(sequence))

    def is_late(self, sequence: Sequence) -> bool:
        """Whether it has lacked room for too long."""
        since = None if sequence.yields else sequence.blocked_since
        return since is not None and self._now - since > self._config.reserve_after_s

    def can_grow(self) -> bool:
        return self._store.num_allocatable > 0

    def needs_block(self, sequence: Sequence) -> bool:
        """Whether its next token has no place in its blocks."""
        return len(sequence.blocks) * self._config.block_size < sequence.total

    def grow(self, sequence: Sequence) -> None:
        sequence.blocks.extend(self._store.allocate(1))

    @property
    def _is_full(self) -> bool:
        """For tenants that run something."""
        return len(self.running) >= self.limit.now

    @property
    def _most(self) -> int:
        """That run, those of newcomers included."""
        return self.limit.now + min(self._config.newcomers, self.limit.now // NEWCOMER_PART)

    def _is_full_for(self, sequence: Sequence) -> bool:
        """Beyond the limit a place goes to a tenant that runs fewer sequences than places are left: a crowd
        gets none, one that runs nothing the last, and one that runs little gets on meanwhile."""
        if not self._is_full:
            return False
        if sequence.yields:
            return True
        return self._runs[sequence.request.add.tenant] >= self._most - len(self.running)

    def _is_ready(self, sequence: Sequence) -> bool:
        """Whether it could run if there were room."""
        request = sequence.request
        if sequence.num_in_flight:
            return False  # it was preempted a moment ago; what its submitted row samples isn't known yet
        if sequence.choice > 0 and request.shares_soon:
            return False  # it will share the prompt's blocks with choice 0
        adapter = request.add.adapter
        return adapter is None or self._adapters.can_pin(adapter, self._now)

    def _match(self, sequence: Sequence) -> list[int]:
        """Blocks with KV that it can share; at least its last known token is left to compute."""
        if sequence.owes_prompt_logprobs:
            return []  # log-probabilities of the prompt exist only where it is computed
        block_size = self._config.block_size
        return self._store.match(sequence.keys((sequence.total - 1) // block_size, block_size))

    def _has_blocks(self, sequence: Sequence, shared: list[int]) -> bool:
        is_lacking = self._num_lacking(sequence, shared) > 0
        if is_lacking:
            self._note_blocked(sequence)
        if self.is_late(sequence):
            self._reserved[sequence] = self._num_needed(sequence, shared)
        return not is_lacking

    def _num_lacking(self, sequence: Sequence, shared: list[int]) -> int:
        floor = self._config.watermark_blocks if self.running else 0
        needed = self._num_needed(sequence, shared) + floor + self._reserved_from(sequence)
        return needed - self._store.num_allocatable

    def _reserved_from(self, sequence: Sequence) -> int:
        """Blocks that it has to leave to those that were asked before it: nothing is kept for tenants that
        hold more than its own."""
        tenant, total = sequence.request.add.tenant, 0
        for other, count in self._reserved.items():
            if other is sequence:
                break
            other_tenant = other.request.add.tenant
            if other_tenant == tenant or self._held[other_tenant] <= self._held[tenant]:
                total += count
        return total

    def _num_needed(self, sequence: Sequence, shared: list[int]) -> int:
        return self._config.blocks_for(sequence.total) - len(shared) + self._store.num_cached(shared)

    def _note_blocked(self, sequence: Sequence) -> None:
        if sequence.blocked_since is None:
            sequence.blocked_since = self._now

    # What it gets and gives back

    def _place(self, sequence: Sequence, shared: list[int]) -> None:
        request = sequence.request
        self._store.take(shared)
        fresh = self._store.allocate(self._config.blocks_for(sequence.total) - len(shared))
        sequence.blocks = [*shared, *fresh]
        sequence.computed = len(shared) * self._config.block_size
        sequence.num_published = len(shared)
        sequence.blocked_since = None
        self._reserved.pop(sequence, None)
        self._pin(sequence)
        self._fair.charge_cached(sequence)
        if request.first_scheduled is None:
            request.first_scheduled = self._now
            self._count_cached(request, sequence.computed)
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self._runs[request.add.tenant] += 1
        sequence.state = State.RUNNING

    def _count_cached(self, request: Request, cached: int) -> None:
        request.cached = cached
        request.num_prompt_counted = cached
        self.counters.cache_query_tokens += len(request.prompt)
        self.counters.cache_hit_tokens += cached

    def _pin(self, sequence: Sequence) -> None:
        adapter = sequence.request.add.adapter
        if adapter is None:
            return
        epoch = self._adapters.slot_epoch
        sequence.slot = self._adapters.pin(adapter, self._now)
        sequence.adapter_bytes = self._adapters.num_bytes(adapter.artefact)
        if self._adapters.slot_epoch != epoch:
            self._fair.charge_install(sequence.request.add.tenant, sequence.adapter_bytes)

    def _stop(self, sequence: Sequence) -> None:
        tenant = sequence.request.add.tenant
        self.running.remove(sequence)
        self._runs[tenant] -= 1
        if not self._runs[tenant]:
            del self._runs[tenant]
        self._give_back(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        """Its blocks go at once, though a submitted step may still write to them: whoever gets them writes in
        a later step. A slot is filled beside the steps, so it stays until they have run."""
        self._store.release(sequence.blocks)
        sequence.blocks = []
        if sequence.num_in_flight and sequence.slot != BASE_SLOT:
            self._lingering.add(sequence)
        else:
            self._unpin(sequence)

    def _unpin(self, sequence: Sequence) -> None:
        if sequence.request.add.adapter is not None:
            self._adapters.unpin(sequence.request.add.adapter)
            sequence.slot = BASE_SLOT

    def _stop_waiting_for_slot(self, sequence: Sequence) -> None:
        adapter = sequence.request.add.adapter
        if adapter is not None and all(s.request.artefact != adapter.artefact for s in self.waiting):
            self._adapters.stop_waiting(adapter)
