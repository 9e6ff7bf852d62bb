"""What each step computes: the tokens of which sequences, in which blocks and slots.

Sequences that only need their newest token computed go first (decode), then the rest of the step's token
budget goes to those further behind (prefill, in chunks), running or newly admitted: in equal shares to the
tenants that want some, and within a share in order of priority. Whoever can't run now is skipped. Three rules
keep skipping from starving anyone: a request rises by a class for each `aging_s` it waits; one that has been
short of blocks for `reserve_after_s` has what is free kept for it; and a tenant that runs nothing for so long
gets room from the tenant that holds most.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import KvStore
from engine.core.limits import CoreConfig
from engine.core.plan import BASE_SLOT
from engine.core.request import Request, Sequence, State


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `num_tokens` tokens of a sequence, to be computed in this step."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether it reaches the last known token, so that the next one can be sampled."""
        return self.num_tokens == self.sequence.remaining


@dataclass(slots=True)
class SchedulerCounters:
    cache_query_tokens: int = 0
    cache_hit_tokens: int = 0
    preemptions: int = 0


class Scheduler:
    """Owns the order of sequences and their block tables (the blocks themselves are the store's)."""

    def __init__(self, config: CoreConfig, store: KvStore, adapters: AdapterPool) -> None:
        self._config = config
        self._store = store
        self._adapters = adapters
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._lingering: set[Sequence] = set()  # run no more, but a submitted step still uses their slots
        self._now = 0.0
        self._made_way = float("-inf")  # when sequences were last preempted for a tenant that ran nothing
        self._reserved = 0  # blocks kept for requests that wait for blocks, in this step
        self.counters = SchedulerCounters()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """Tokens to compute before all that wait would be sampled for the first time."""
        return sum(sequence.remaining for sequence in self._waiting)

    def add(self, request: Request) -> None:
        """Takes in all choices of a request that could run alone (`Intake` saw to it)."""
        self._waiting.extend(request.sequences)

    def remove(self, sequence: Sequence) -> None:
        """Frees what a sequence holds; it won't run again."""
        if sequence.state is State.RUNNING:
            self._running.remove(sequence)
            self._give_back(sequence)
        elif sequence.state is State.WAITING:
            self._waiting.remove(sequence)
        sequence.state = State.FINISHED

    def schedule(self, now: float) -> list[Chunk]:
        """The step's chunks, at most one a sequence; blocks and slots are in place when it returns."""
        self._now = now
        self._reserved = 0
        was_preempted = self._grow_tables()
        was_preempted |= self._make_way()
        decoding = [Chunk(s, 1) for s in self._ordered(self._running) if s.remaining == 1]
        budget = self._config.step_tokens - len(decoding)
        prefilling = self._prefill(budget, admit=not was_preempted)
        self._adapters.balance(now, self._tokens_left_on)
        return decoding + prefilling

    def publish(self, sequence: Sequence, computed: int) -> None:
        """Names the blocks that are full now that `computed` tokens have run, so that others can share
        them."""
        num_full = computed // self._config.block_size
        if num_full > sequence.num_published:
            keys = sequence.keys(num_full, self._config.block_size)
            for index in range(sequence.num_published, num_full):
                self._store.publish(sequence.blocks[index], keys[index])
            sequence.num_published = num_full

    def note_applied(self, sequence: Sequence) -> None:
        """A submitted row of it has run. If the sequence has stopped meanwhile, its slot was kept for that
        row."""
        sequence.num_in_flight -= 1
        if sequence in self._lingering and sequence.num_in_flight == 0:
            self._lingering.remove(sequence)
            self._unpin(sequence)

    def tables(self) -> list[list[int]]:
        """All block tables in use."""
        return [sequence.blocks for sequence in self._running]

    def pins(self) -> Counter[str]:
        """How many sequences hold each adapter's slot."""
        holders = [*self._running, *self._lingering]
        return Counter(s.request.artefact for s in holders if s.request.artefact is not None)

    # Running sequences

    def _grow_tables(self) -> bool:
        """Gives each decoding sequence the block that its next token needs, taking blocks from those of least
        priority where there is none left. Returns whether anyone was preempted."""
        was_preempted = False
        for sequence in self._ordered(self._running):
            if (
                sequence.state is not State.RUNNING
                or len(sequence.blocks) * self._config.block_size >= sequence.total
            ):
                continue
            while sequence.state is State.RUNNING and self._store.num_allocatable == 0:
                self._preempt(self._spare() or max(self._running, key=self._priority))
                was_preempted = True
            if sequence.state is State.RUNNING:
                sequence.blocks.extend(self._store.allocate(1))
        return was_preempted

    def _make_way(self) -> bool:
        """Admits the first request of each tenant that runs nothing and has waited too long for room, at the
        cost of the tenant that holds most; not more often than in each `reserve_after_s`, so that those who
        are preempted get on between. Returns whether anyone was preempted."""
        was_preempted = False
        if self._now - self._made_way < self._config.reserve_after_s:
            return False
        running = {s.request.add.tenant for s in self._running}
        for sequence in self._ordered([s for s in self._waiting if self._is_late(s)]):
            if sequence.request.add.tenant in running:
                continue
            while self._lacks_room(sequence) and (spare := self._spare()) and self._could_fit(sequence):
                self._preempt(spare)
                self._made_way = self._now
                was_preempted = True
            if self._admit(sequence):
                running.add(sequence.request.add.tenant)
            self._reserved = 0  # kept for those that are not admitted here, once a step
        return was_preempted

    def _lacks_room(self, sequence: Sequence) -> bool:
        """Whether nothing but room keeps a sequence from running."""
        request = sequence.request
        if sequence.choice > 0 and not request.prompt_computed:
            return False
        if request.add.adapter is not None and not self._adapters.can_pin(request.add.adapter, self._now):
            return False
        if len(self._running) >= self._config.max_running:
            return True
        return self._num_lacking(sequence, self._match(sequence)) > 0

    def _could_fit(self, sequence: Sequence) -> bool:
        """Whether there is room for it once each tenant runs one sequence only. Blocks that are shared count
        more than once here."""
        largest: dict[str, int] = {}
        total = 0
        for other in self._running:
            total += len(other.blocks)
            tenant = other.request.add.tenant
            largest[tenant] = max(largest.get(tenant, 0), len(other.blocks))
        return self._num_lacking(sequence, self._match(sequence)) <= total - sum(largest.values())

    def _is_late(self, sequence: Sequence) -> bool:
        since = sequence.blocked_since
        return since is not None and self._now - since > self._config.reserve_after_s

    def _spare(self) -> Sequence | None:
        """The last in priority of the tenant that holds most blocks, out of those that run more than one."""
        blocks: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for sequence in self._running:
            blocks[sequence.request.add.tenant] += len(sequence.blocks)
            count[sequence.request.add.tenant] += 1
        rich = [tenant for tenant in count if count[tenant] > 1]
        if not rich:
            return None
        most = max(rich, key=lambda tenant: blocks[tenant])
        return max((s for s in self._running if s.request.add.tenant == most), key=self._priority)

    def _preempt(self, sequence: Sequence) -> None:
        """Takes everything from a running sequence; it will compute its tokens again, and bill none twice."""
        self._running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.runs_ahead = False
        sequence.state = State.WAITING
        self._waiting.append(sequence)
        self.counters.preemptions += 1

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

    # Prefill and admission

    def _prefill(self, budget: int, *, admit: bool) -> list[Chunk]:
        """Shares the budget over the tenants that have something to compute; what some of them leave of their
        share goes to the others, in order of priority. So one tenant's long prompts slow those of another,
        and never hold them up."""
        behind = [s for s in self._running if s.remaining > 1]
        queue = self._ordered(behind + self._waiting if admit else behind)
        share = max(1, budget // max(1, len({s.request.add.tenant for s in queue})))
        left: dict[str, int] = {s.request.add.tenant: share for s in queue}
        given: dict[Sequence, int] = {}
        refused: set[Sequence] = set()
        for sequence, most_of in [*((s, left) for s in queue), *((s, None) for s in queue)]:
            tenant = sequence.request.add.tenant
            most = budget if most_of is None else min(budget, most_of[tenant])
            if most <= 0 or sequence in refused:
                continue
            if sequence.state is State.WAITING and not self._admit(sequence):
                refused.add(sequence)  # asked once a step: a refusal may keep blocks for it
                continue
            more = min(sequence.remaining - given.get(sequence, 0), most)
            if more > 0:
                given[sequence] = given.get(sequence, 0) + more
                left[tenant] -= more
                budget -= more
        return [Chunk(sequence, num_tokens) for sequence, num_tokens in given.items()]

    def _admit(self, sequence: Sequence) -> bool:
        """Gives a waiting sequence blocks for all its known tokens, and a slot, or leaves it as it is."""
        request = sequence.request
        if sequence.num_in_flight:
            return False  # it was preempted a moment ago; what its submitted row samples isn't known yet
        if len(self._running) >= self._config.max_running:
            self._note_blocked(sequence)
            return False
        if sequence.choice > 0 and not request.prompt_computed:
            return False  # it will share the prompt's blocks with choice 0
        if request.add.adapter is not None and not self._adapters.can_pin(request.add.adapter, self._now):
            return False
        shared = self._match(sequence)
        if not self._has_blocks(sequence, shared):
            return False
        self._place(sequence, shared)
        return True

    def _match(self, sequence: Sequence) -> list[int]:
        """Blocks with KV that it can share; at least its last known token is left to compute."""
        if sequence.owes_prompt_logprobs:
            return []  # log-probabilities of the prompt exist only where it is computed
        block_size = self._config.block_size
        return self._store.match(sequence.keys((sequence.total - 1) // block_size, block_size))

    def _has_blocks(self, sequence: Sequence, shared: list[int]) -> bool:
        lacking = self._num_lacking(sequence, shared)
        if lacking <= 0:
            return True
        self._note_blocked(sequence)
        if self._is_late(sequence):
            self._reserved += self._num_needed(sequence, shared)
        return False

    def _num_lacking(self, sequence: Sequence, shared: list[int]) -> int:
        floor = self._config.watermark_blocks if self._running else 0
        needed = self._num_needed(sequence, shared) + floor + self._reserved
        return needed - self._store.num_allocatable

    def _num_needed(self, sequence: Sequence, shared: list[int]) -> int:
        return self._config.blocks_for(sequence.total) - len(shared) + self._store.num_cached(shared)

    def _note_blocked(self, sequence: Sequence) -> None:
        if sequence.blocked_since is None:
            sequence.blocked_since = self._now

    def _place(self, sequence: Sequence, shared: list[int]) -> None:
        request = sequence.request
        self._store.take(shared)
        fresh = self._store.allocate(self._config.blocks_for(sequence.total) - len(shared))
        sequence.blocks = [*shared, *fresh]
        sequence.computed = len(shared) * self._config.block_size
        sequence.num_published = len(shared)
        sequence.blocked_since = None
        if request.add.adapter is not None:
            sequence.slot = self._adapters.pin(request.add.adapter, self._now)
        if request.first_scheduled is None:
            request.first_scheduled = self._now
            self._count_cached(request, sequence.computed)
        self._waiting.remove(sequence)
        self._running.append(sequence)
        sequence.state = State.RUNNING

    def _count_cached(self, request: Request, cached: int) -> None:
        request.cached = cached
        request.num_prompt_counted = cached
        self.counters.cache_query_tokens += len(request.prompt)
        self.counters.cache_hit_tokens += cached

    # Order

    def _priority(self, sequence: Sequence) -> tuple[int, int, int]:
        return (*sequence.request.priority(self._now, self._config.aging_s), sequence.choice)

    def _ordered(self, sequences: list[Sequence]) -> list[Sequence]:
        return sorted(sequences, key=self._priority)

    def _tokens_left_on(self, artefact: str) -> int:
        return max((s.tokens_left for s in self._running if s.request.artefact == artefact), default=0)
