"""The real scheduler, adapter pool and block pool in virtual time: steps take what a model of a machine says.

Clients are closed loops: each asks, reads its answer to the end, and asks again. What comes out is what they
feel: times of tokens, and what each tenant was served. Nothing here depends on the time that it takes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import BlockPool
from engine.core.limits import CoreConfig
from engine.core.plan import BASE_SLOT
from engine.core.protocol import AdapterRef, AddRequest, Purpose, Sampling, ServiceClass
from engine.core.request import Request, Sequence, State
from engine.core.scheduler import Chunk, Scheduler
from engine.core.step_cost import StepLoad
from tests.engine.core.fakes import FakeLoaders, FakeRunner

BLOCK = 16


@dataclass(frozen=True)
class Machine:
    """What a step takes, in milliseconds."""

    base: float
    row: float
    adapter_mb: float
    token: float
    kilo_position: float  # KV read for a row, per 1,024 positions
    mega_attended: float  # (query, position) pairs beyond each row's first query, per million
    noise: float = 0.05

    def step_ms(self, load: StepLoad) -> float:
        return (
            self.base
            + self.row * load.rows
            + self.adapter_mb * load.adapter_bytes / 1e6
            + self.token * load.extra_tokens
            + self.kilo_position * load.positions / 1_024
            + self.mega_attended * load.attended / 1e6
        )


SMALL_ON_CPU = Machine(base=12.0, row=0.4, adapter_mb=0.04, token=0.4, kilo_position=0.9, mega_attended=530.0)
"""SmolLM2-135M on two cores."""
LARGE_ON_GPU = Machine(
    base=4.5, row=0.02, adapter_mb=0.00025, token=0.02, kilo_position=0.034, mega_attended=1.0
)
"""About an 8B model in 8 bits on a GPU of 4 TB/s."""


@dataclass(frozen=True)
class Client:
    """One caller that asks again as soon as it has its answer."""

    tenant: str
    prompt: int
    outputs: int
    adapters: tuple[str, ...] = ()  # it asks for each in turn; none = the base
    service_class: ServiceClass = ServiceClass.STANDARD
    starts_s: float = 0.0
    stops_s: float = float("inf")
    pauses_s: float = 0.0
    purpose: Purpose = Purpose.TENANT


@dataclass
class Answer:
    """What one request felt, in seconds."""

    client: Client
    arrived: float
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.arrived

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in pairwise(self.tokens)]


class TimedLoaders(FakeLoaders):
    """Loads that take `load_s`."""

    def __init__(self, clock: Callable[[], float], load_s: float, num_bytes: int) -> None:
        super().__init__(automatic=False, num_bytes=num_bytes)
        self._clock = clock
        self._load_s = load_s
        self._due: dict[str, float] = {}

    def complete_due(self) -> None:
        for ref in list(self.under_way):
            due = self._due.setdefault(ref.artefact, self._clock() + self._load_s)
            if self._clock() >= due:
                del self._due[ref.artefact]
                self.complete(ref.artefact)


class Simulation:
    def __init__(
        self,
        machine: Machine,
        clients: Iterable[Client],
        *,
        seed: int = 1,
        adapter_bytes: int = 18_000_000,
        load_s: float = 0.05,
        slow: float = 1.0,
        slow_until_s: float = 0.0,
        **limits: float | None,
    ) -> None:
        self.config = CoreConfig(**{"num_blocks": 4_096, "block_size": BLOCK, **limits})  # type: ignore[arg-type]
        self.machine = machine
        self.slow, self.slow_until_s = slow, slow_until_s  # how many times slower it is at first
        self.now = 0.0
        self.loaders = TimedLoaders(lambda: self.now, load_s, adapter_bytes)
        self.blocks = BlockPool(self.config.num_blocks)
        self.adapters = AdapterPool(self.config, FakeRunner(BLOCK), self.loaders)
        self.scheduler = Scheduler(self.config, self.blocks, self.adapters)
        self.answers: list[Answer] = []
        self.served: Counter[str] = Counter()  # tokens computed and generated, by tenant
        self.num_steps = 0
        self.busy_s = 0.0
        self.most_adapters = 0
        self.most_rows = 0
        self._dice = random.Random(seed)
        self._open: dict[Sequence, Answer] = {}
        self._due: list[tuple[float, int, Client]] = []  # who asks when
        self._asked: Counter[Client] = Counter()
        self._next_number = 0
        for number, client in enumerate(clients):
            self._due.append((client.starts_s, number, client))

    def run(self, until_s: float, each_step: Callable[[list[Chunk]], None] = lambda chunks: None) -> None:
        while self.now < until_s:
            self._arrive()
            self.loaders.complete_due()
            self.adapters.poll(self.now)
            chunks = self.scheduler.schedule(self.now)
            if not chunks:
                self.now += 0.001
                continue
            each_step(chunks)
            self._run(chunks)
        self.blocks.check(self.scheduler.tables())

    def answers_of(self, tenant: str, since_s: float = 0.0) -> list[Answer]:
        return [
            answer
            for answer in self.answers
            if answer.client.tenant == tenant and answer.tokens and answer.tokens[0] >= since_s
        ]

    def gaps(self, tenant: str, since_s: float = 0.0) -> list[float]:
        return [gap for answer in self.answers_of(tenant, since_s) for gap in answer.gaps]

    @property
    def num_generated(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers)

    def _arrive(self) -> None:
        for entry in sorted(entry for entry in self._due if entry[0] <= self.now):
            self._due.remove(entry)
            self._ask(entry[2])

    def _ask(self, client: Client) -> None:
        self._asked[client] += 1
        number, self._next_number = self._next_number, self._next_number + 1
        name = client.adapters[self._asked[client] % len(client.adapters)] if client.adapters else None
        ref = None if name is None else AdapterRef(artefact=name, owner=client.tenant)
        add = AddRequest(
            request=str(number),
            attempt=1,
            tenant=client.tenant,
            key="key",
            adapter=ref,
            version="",
            salt="",
            prompt=[number] * client.prompt,
            sampling=Sampling(max_tokens=client.outputs, seed=1),
            service_class=client.service_class,
            purpose=client.purpose,
        )
        request = Request(add, "base", number, self.now)
        answer = Answer(client, self.now)
        self.answers.append(answer)
        self._open[request.sequences[0]] = answer
        if ref is not None:
            self.adapters.enter(ref, self.now, yields=add.yields)
        self.scheduler.add(request)

    def _run(self, chunks: list[Chunk]) -> None:
        load = self.scheduler.planned
        noise = self._dice.gauss(1.0, self.machine.noise)
        pace = self.slow if self.now < self.slow_until_s else 1.0
        duration = self.machine.step_ms(load) * pace * noise / 1000
        self.now += duration
        self.busy_s += duration
        self.num_steps += 1
        self.scheduler.observe(load, duration)
        slots = {chunk.sequence.slot for chunk in chunks} - {BASE_SLOT}
        self.most_adapters = max(self.most_adapters, len(slots))
        self.most_rows = max(self.most_rows, len(chunks))
        assert sum(chunk.num_tokens for chunk in chunks) <= self.config.step_tokens
        for chunk in chunks:
            self._apply(chunk)

    def _apply(self, chunk: Chunk) -> None:
        sequence, samples = chunk.sequence, chunk.samples
        self.served[sequence.request.add.tenant] += chunk.num_tokens
        sequence.computed += chunk.num_tokens
        self.scheduler.publish(sequence, sequence.computed)
        if samples:
            sequence.generated.append(1)
            self._open[sequence].tokens.append(self.now)
            if sequence.tokens_left == 0:
                self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        assert sequence.state is State.FINISHED
        if sequence.request.artefact is not None:
            self.adapters.leave(sequence.request.artefact, yields=sequence.yields)
        client = self._open.pop(sequence).client
        again = self.now + client.pauses_s * self._dice.uniform(0.5, 1.5)
        if again < client.stops_s:
            self._due.append((again, sequence.number, client))


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def zipf(names: list[str], count: int, seed: int, exponent: float = 1.0) -> list[str]:
    """`count` draws of names, the first being the most popular."""
    weights = [1.0 / (rank + 1) ** exponent for rank in range(len(names))]
    return random.Random(seed).choices(names, weights, k=count)
