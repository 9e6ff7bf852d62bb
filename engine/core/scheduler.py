"""What each step computes: the tokens of which sequences, in which blocks and slots.

Sequences that only need their newest token computed go first (decode), then the rest of the step goes to
those further behind (prefill, in chunks), running or newly admitted. Four rules share it out:

- class, then the tenant that was served least, then arrival (`prefill.py`, `fairness.py`);
- no more adapters in a step than are allowed, in turn (`turns.py`);
- prompts and long contexts stretch a step only so far while others decode (`stretch.py`, `step_cost.py`);
- who can't run now is skipped, and nobody is skipped for ever: a request rises by a class for each `aging_s`
  that it waits, one that has been short of blocks for `reserve_after_s` has what is free kept for it, and a
  tenant that runs nothing for so long gets room from the tenant that holds most (`preemption.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from engine.core.adapter_pool import AdapterPool
from engine.core.admission import Admission, SchedulerCounters
from engine.core.block_pool import KvStore
from engine.core.fairness import FairShare
from engine.core.limits import CoreConfig
from engine.core.preemption import Preemption
from engine.core.prefill import Prefill
from engine.core.protocol import ServiceClass
from engine.core.queue_state import Queue
from engine.core.request import Request, Sequence, State
from engine.core.step_cost import StepCost, StepLoad
from engine.core.stretch import Overdraft, Sounding, StepRoom, is_overdue
from engine.core.turns import AdapterTurns


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `num_tokens` tokens of a sequence, to be computed in this step."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether it reaches the last known token, so that the next one can be sampled."""
        return self.num_tokens == self.sequence.remaining


class Scheduler:
    """Composes steps; who waits, who runs and what they hold is `Admission`'s."""

    def __init__(self, config: CoreConfig, store: KvStore, adapters: AdapterPool) -> None:
        self._config = config
        self._store = store
        self._adapters = adapters
        self._cost = StepCost()
        self._fair = FairShare(allowance=config.step_tokens)
        self._turns = AdapterTurns(config.adapters_per_step)
        self._overdraft = Overdraft()
        self._sounding = Sounding()
        self._admission = Admission(config, store, adapters, self._fair)
        self._preemption = Preemption(config, self._admission)
        self._prefill = Prefill(config, self._admission, self._fair, self._overdraft)
        self._wanting: set[str] = set()  # tenants with a prompt to compute
        self._step = 0
        self.planned = StepLoad()
        """What the step composed last takes, for `observe`."""

    @property
    def counters(self) -> SchedulerCounters:
        return self._admission.counters

    @property
    def num_running(self) -> int:
        return len(self._admission.running)

    @property
    def num_waiting(self) -> int:
        return len(self._admission.waiting)

    @property
    def waiting_tokens(self) -> int:
        """Tokens to compute before all that wait would be sampled for the first time."""
        return sum(sequence.remaining for sequence in self._admission.waiting)

    def add(self, request: Request) -> None:
        """Takes in all choices of a request that could run alone (`Intake` saw to it)."""
        tenant = request.add.tenant
        if tenant not in self._wanting:
            self._wanting.add(tenant)
            self._fair.enter(tenant)
        for sequence in request.sequences:
            sequence.ran_in = self._step
        self._admission.waiting.extend(request.sequences)

    def remove(self, sequence: Sequence) -> None:
        """Frees what a sequence holds; it won't run again."""
        self._admission.remove(sequence)

    def schedule(self, now: float) -> list[Chunk]:
        """The step's chunks, at most one a sequence; blocks and slots are in place when it returns."""
        self._step += 1
        self._admission.begin_step(now)
        was_preempted = self._preemption.make_room(now)
        decoding, behind = self._split()
        self._count_wanting(behind)
        waiting = [] if was_preempted else self._admission.admissible()
        decoding, behind, waiting = self._in_turn(decoding, behind, waiting)
        room = StepRoom(self._config, self._cost, decoding)
        is_awaited = not decoding and self._is_awaited()
        wanting = [] if is_awaited or self._is_sounded(room) else behind + waiting
        chunks = [Chunk(s, 1) for s in self._decode(room, has_prompts=bool(wanting))]
        self._admission.limit.follow(self._cost, room.load, now)
        chunks += [
            Chunk(s, count) for s, count in self._prefill.share(room, wanting, now, self._step).items()
        ]
        for chunk in chunks:
            chunk.sequence.ran_in = self._step
        self._adapters.balance(now, TokensLeft(self._admission.running))
        self.planned = room.load
        if room.load.extra_tokens == 0:
            self._sounding.seen(self._step)
        return chunks

    def observe(self, load: StepLoad, duration_s: float) -> None:
        """A step that was `planned` has run; `duration_s` is its own part of the time, without that in which
        it waited for the step before it."""
        self._cost.observe(load, duration_s * 1000)

    def charge_load(self, tenant: str, num_bytes: int) -> None:
        """A request of the tenant had an adapter loaded."""
        self._fair.charge_load(tenant, num_bytes)

    def publish(self, sequence: Sequence, computed: int) -> None:
        """Names the blocks that are full now that `computed` tokens have run, so that others can share
        them. Those of a proof would only drive out what is asked for again."""
        if sequence.yields:
            return
        num_full = computed // self._config.block_size
        if num_full > sequence.num_published:
            keys = sequence.keys(num_full, self._config.block_size)
            for index in range(sequence.num_published, num_full):
                self._store.publish(sequence.blocks[index], keys[index])
            sequence.num_published = num_full

    def note_applied(self, sequence: Sequence) -> None:
        """A submitted row of it has run."""
        self._admission.note_applied(sequence)

    def tables(self) -> list[list[int]]:
        """All block tables in use."""
        return [sequence.blocks for sequence in self._admission.running]

    def pins(self) -> Counter[str]:
        """How many sequences hold each adapter's slot."""
        return self._admission.pins()

    def queue(self) -> Queue:
        running, waiting = self._admission.running, self._admission.waiting
        tokens: Counter[str] = Counter()
        for sequence in [*running, *waiting]:
            tokens[sequence.request.add.tenant] += max(0, sequence.remaining)
        return Queue(
            running=len(running),
            running_limit=self._admission.limit.now,
            waiting=len(waiting),
            waiting_tokens=self.waiting_tokens,
            running_tokens=sum(max(0, s.remaining) for s in running),
            step_ms=self._cost.estimate_ms(self.planned),
            tenants=self._fair.picture(tokens),
        )

    # Composing a step

    def _split(self) -> tuple[list[Sequence], list[Sequence]]:
        """Those that run by what they need: their newest token computed, or more than that. One whose newest
        token isn't known yet needs nothing."""
        decoding, behind = [], []
        for sequence in self._admission.running:
            remaining = sequence.remaining
            if remaining == 1:
                decoding.append(sequence)
            elif remaining > 1:
                behind.append(sequence)
        return decoding, behind

    def _count_wanting(self, behind: list[Sequence]) -> None:
        self._wanting = {s.request.add.tenant for s in (*behind, *self._admission.waiting)}
        self._fair.begin_step(self._wanting)
        self._fair.forget(self._wanting.union(s.request.add.tenant for s in self._admission.running))

    def _in_turn(self, *parts: list[Sequence]) -> Iterator[list[Sequence]]:
        """Of those that run and wait, the sequences of the adapters whose turn it is, and of the base."""
        if self._config.adapters_per_step >= self._config.num_slots:
            return iter(parts)  # what runs is in slots
        rows: Counter[str] = Counter()
        late: set[str] = set()  # has waited for room too long, and has it now
        for sequence in chain.from_iterable(parts):
            artefact = sequence.request.artefact
            if artefact is None:
                continue
            if sequence.state is not State.RUNNING:
                is_late = self._admission.is_late(sequence)
                if (is_late or artefact not in rows) and not self._admission.could_admit(sequence):
                    continue
                if is_late:
                    late.add(artefact)
            rows[artefact] += 1
        turn = {None, *self._turns.choose(rows, late)}
        return ([s for s in part if s.request.artefact in turn] for part in parts)

    def _is_awaited(self) -> bool:
        """Whether somebody's next token waits for the step under way. A step of prompts alone would only come
        between the two."""
        protects = self._config.itl_stretch is not None
        return protects and any(
            s.needs_newest and s.request.add.service_class is not ServiceClass.BATCH
            for s in self._admission.running
        )

    def _is_sounded(self, room: StepRoom) -> bool:
        """Whether this step does without prompts, to see how long one without them takes."""
        return room.is_bounded and self._sounding.is_due(self._step)

    def _decode(self, room: StepRoom, *, has_prompts: bool) -> list[Sequence]:
        """Whose newest token is computed: all of them, but for long contexts that have to take turns."""
        chosen = list(room.short)
        for sequence in chosen:
            self._decode_one(room, sequence)
        may_overdraw = self._overdraft.is_due(self._step) and not (
            has_prompts and self._overdraft.for_prompts
        )
        for sequence in sorted(room.long, key=lambda s: (s.ran_in, s.number)):
            if not room.fitting_long(sequence):
                if not (may_overdraw and is_overdue(sequence, self._step)):
                    continue
                may_overdraw = False
                self._overdraft.use(self._step, for_prompts=False)
            self._decode_one(room, sequence)
            chosen.append(sequence)
        return chosen

    def _decode_one(self, room: StepRoom, sequence: Sequence) -> None:
        room.add(sequence, sequence.computed, 1)
        self._fair.charge(sequence, sequence.computed + 1)


class TokensLeft:
    """How many tokens the running sequences of an adapter may still generate, at most; 0 if none runs."""

    def __init__(self, running: list[Sequence]) -> None:
        self._running = running
        self._most: dict[str, int] | None = None  # counted when somebody asks

    def __call__(self, artefact: str) -> int:
        if self._most is None:
            self._most = {}
            for sequence in self._running:
                if (name := sequence.request.artefact) is not None:
                    self._most[name] = max(self._most.get(name, 0), sequence.tokens_left)
        return self._most.get(artefact, 0)
