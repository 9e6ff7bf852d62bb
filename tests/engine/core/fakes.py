"""Stands in for the numerics, the loader threads and the socket, so that the core can be driven by hand.

The fake runner is a pure function: it keeps what each block position was written with, reads it back through
the block table, and derives the next token from all tokens and the adapter in the row's slot. A wrong block,
position, slot or share of a prefix therefore changes the answer.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.core.adapter_entry import Lane
from engine.core.adapter_loader import LoadDone
from engine.core.journal import Journal, JournalLine
from engine.core.journal_reader import JournalReader
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.plan import BASE_SLOT, PENDING_TOKEN, LoadedAdapter, Row, RowResult, StepPlan
from engine.core.protocol import (
    AdapterRef,
    AddRequest,
    Ended,
    FromCore,
    Purpose,
    Sampling,
    ServiceClass,
    Stats,
    Tier,
    ToCore,
    TokenLogprob,
    Tokens,
)
from engine.core.replay import NamedHandle, RecordedRunner
from engine.core.trace import TraceWriter

VOCAB = 101
EOS = 100
MODEL = ModelFacts("base", "digest", max_model_len=512, vocab_size=VOCAB, eos_token_ids=(EOS,))


def next_token(tokens: Sequence[int], artefact: str | None, choice: int, banned: Sequence[int] = ()) -> int:
    """The fake model: the next token after `tokens` under an adapter, for a choice."""
    data = struct.pack(f"<{len(tokens)}I", *tokens) + f"{artefact}/{choice}".encode()
    start = int.from_bytes(hashlib.sha256(data).digest()[:4], "little")
    return next(t for t in ((start + i) % VOCAB for i in range(VOCAB)) if t not in banned)


def expected(add: AddRequest, choice: int = 0, max_model_len: int = MODEL.max_model_len) -> list[int]:
    """What a request's choice generates when nothing interferes."""
    sampling = add.sampling
    ends = sampling.stop_token_ids if sampling.ignore_eos else (EOS, *sampling.stop_token_ids)
    generated: list[int] = []
    while True:
        banned = ends if len(generated) < sampling.min_tokens else ()
        artefact = None if add.adapter is None else add.adapter.artefact
        generated.append(next_token([*add.prompt, *generated], artefact, choice, banned))
        full = len(add.prompt) + len(generated) >= max_model_len
        if generated[-1] in ends or len(generated) == sampling.max_tokens or full:
            return generated


@dataclass
class FakeRunner:
    """Remembers (token, adapter) for each block position, as KV would."""

    block_size: int
    kv: dict[tuple[int, int], tuple[int, str | None]] = field(default_factory=dict)
    slots: dict[int, str] = field(default_factory=dict)
    plans: list[str] = field(default_factory=list)
    results: list[list[RowResult]] = field(default_factory=list)
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # (sequence, start, tokens)
    fail_on: set[int] = field(default_factory=set)  # prompts that start with such a token fail
    poisoned: set[int] = field(default_factory=set)  # rows with such a token fail, sampled or not
    crash: bool = False
    record: bool = True
    max_in_flight: int = 1
    most_tokens: int = 0
    most_adapters: int = 0
    num_pending: int = 0  # rows whose token the host didn't know
    unfinished: list[FakeStep] = field(default_factory=list)
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence: step, token sampled

    def submit(self, plan: StepPlan) -> FakeStep:
        """Computes nothing before `wait`: as late as a device may."""
        if self.crash:
            raise RuntimeError("the device is lost")
        assert len(self.unfinished) < self.max_in_flight, "more steps than were agreed"
        if self.record:
            self.plans.append(repr(plan))
        self.most_tokens = max(self.most_tokens, plan.num_tokens)
        self.most_adapters = max(self.most_adapters, len({row.slot for row in plan.rows} - {BASE_SLOT}))
        step = FakeStep(self, plan.step, [_copy(row) for row in plan.rows])
        self.unfinished.append(step)
        return step

    def install(self, slot: int, adapter: object) -> None:
        assert slot not in self.slots, "a slot is emptied before it is filled"
        assert isinstance(adapter, str)
        self._assert_unused(slot)
        self.slots[slot] = adapter

    def clear(self, slot: int) -> None:
        self._assert_unused(slot)
        del self.slots[slot]

    def run(self, step: FakeStep) -> list[RowResult]:
        assert self.unfinished.pop(0) is step, "steps run in order"
        written = [(row.block_table[p // self.block_size], p) for row in step.rows for p in row.positions]
        assert len(written) == len(set(written)), "a block position has one writer in a step"
        results = [result for row in step.rows if (result := self._run(step.number, row)) is not None]
        if self.record:
            self.results.append(results)
        return results

    def _assert_unused(self, slot: int) -> None:
        used = {row.slot for step in self.unfinished for row in step.rows}
        assert slot not in used, "a submitted step uses this slot"

    def _resolve(self, step: int, row: Row) -> list[int]:
        """The row's tokens, a pending one from the step before."""
        if PENDING_TOKEN not in row.tokens:
            return list(row.tokens)
        assert len(row.tokens) == 1
        assert not row.prompt_logprobs
        assert row.sample is not None
        assert not row.sample.banned
        assert not row.sample.sampling.has_penalties
        self.num_pending += 1
        sampled_in, token = self.newest[row.sequence]
        assert sampled_in == step - 1, "a pending token is the step before's"
        return [token]

    def _run(self, step: int, row: Row) -> RowResult | None:
        artefact = None if row.slot == BASE_SLOT else self.slots[row.slot]
        self.rows.append((row.sequence, row.start, len(row.tokens)))
        tokens = self._resolve(step, row)
        for i, token in enumerate(tokens):
            block, offset = divmod(row.start + i, self.block_size)
            self.kv[row.block_table[block], offset] = (token, artefact)
        if self.poisoned & set(tokens):
            self.newest[row.sequence] = (step, 0)
            return RowResult(row.sequence, error="not finite")
        logprobs: list[TokenLogprob | None] = []
        if row.prompt_logprobs:
            logprobs = [
                None if row.start + i == 0 else TokenLogprob(token, -float(row.start + i), [])
                for i, token in enumerate(row.tokens)
            ]
        if row.sample is None:
            return RowResult(row.sequence, prompt_logprobs=logprobs) if logprobs else None
        seen = []
        for position in range(row.start + len(row.tokens)):
            block, offset = divmod(position, self.block_size)
            token, written_under = self.kv[row.block_table[block], offset]
            assert written_under == artefact, "KV of another adapter"
            seen.append(token)
        listed = [*row.sample.prompt, *row.sample.generated]
        assert seen[: len(listed)] == listed, "KV of other tokens"
        if row.sample.prompt:  # a trace leaves it out
            assert len(seen) == len(row.sample.prompt) + row.sample.counter
        self.newest[row.sequence] = (step, 0)
        if seen[0] in self.fail_on:
            return RowResult(row.sequence, error="not a number")
        token = next_token(seen, artefact, row.sample.choice, row.sample.banned)
        self.newest[row.sequence] = (step, token)
        logprob = None if row.sample.sampling.logprobs is None else TokenLogprob(token, -0.5, [])
        return RowResult(row.sequence, token=token, logprob=logprob, prompt_logprobs=logprobs)


@dataclass(frozen=True, eq=False)
class FakeStep:
    runner: FakeRunner
    number: int
    rows: list[Row]

    def wait(self) -> list[RowResult]:
        return self.runner.run(self)


def _copy(row: Row) -> Row:
    """What a runner reads of a row before `submit` returns."""
    sample = row.sample
    if sample is not None:
        sample = replace(sample, prompt=tuple(sample.prompt), generated=tuple(sample.generated))
    return replace(row, tokens=tuple(row.tokens), block_table=tuple(row.block_table), sample=sample)


@dataclass
class FakeLoaders:
    """Loads end when `complete` is called, or by themselves at the next poll if `automatic`."""

    automatic: bool = True
    num_bytes: int = 1_000
    device_bytes: int = 0
    far: set[str] = field(default_factory=set)  # not on disk; what has loaded is
    handle_of: Callable[[AdapterRef], object] = lambda ref: ref.artefact
    failing: set[str] = field(default_factory=set)
    under_way: list[AdapterRef] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    most_under_way: int = 0
    _done: list[LoadDone] = field(default_factory=list)

    def is_near(self, adapter: AdapterRef) -> bool:
        return adapter.artefact not in self.far

    def start(self, adapter: AdapterRef, lane: Lane) -> None:
        self.under_way.append(adapter)
        self.most_under_way = max(self.most_under_way, len(self.under_way))

    def complete(self, artefact: str) -> None:
        ref = next(ref for ref in self.under_way if ref.artefact == artefact)
        self.under_way.remove(ref)
        if artefact in self.failing:
            self._done.append(LoadDone(ref, None, "corrupt"))
        else:
            self.far.discard(artefact)
            loaded = LoadedAdapter(self.handle_of(ref), self.num_bytes, Tier.STORE, 1.0, self.device_bytes)
            self._done.append(LoadDone(ref, loaded))

    def finished(self) -> list[LoadDone]:
        if self.automatic:
            for ref in list(self.under_way):
                self.complete(ref.artefact)
        done, self._done = self._done, []
        return done

    def forget(self, adapter: AdapterRef) -> None:
        self.forgotten.append(adapter.artefact)

    def close(self) -> None:
        self.under_way.clear()


@dataclass
class FakeTransport:
    inbox: list[ToCore] = field(default_factory=list)
    sent: list[FromCore] = field(default_factory=list)

    def recv_all(self) -> list[ToCore]:
        frames, self.inbox = self.inbox, []
        return frames

    def wait(self, timeout_s: float) -> None:
        raise AssertionError("nothing will ever come")

    def send(self, frames: Sequence[FromCore]) -> None:
        self.sent.extend(frames)


class Bench:
    """A core on a fake clock that moves by `step_s` each step."""

    def __init__(
        self,
        directory: Path,
        *,
        step_s: float = 0.01,
        model: ModelFacts = MODEL,
        max_in_flight: int = 1,
        trace: TraceWriter | None = None,
        **limits: float | None,
    ) -> None:
        self.config = CoreConfig(**{"num_blocks": 64, "block_size": 4, "max_running": 16, **limits})  # type: ignore[arg-type]
        self.now = 0.0
        self.step_s = step_s
        self.runner = FakeRunner(self.config.block_size, max_in_flight=max_in_flight)
        self.loaders = FakeLoaders()
        if trace is not None:
            self.loaders.handle_of = lambda ref: NamedHandle(ref, ref.artefact)
        self.transport = FakeTransport()
        self.directory = directory
        self.journal = Journal(directory)
        self.loop = Loop(
            self.config,
            model,
            Parts(
                self.runner if trace is None else RecordedRunner(self.runner, trace),
                self.loaders,
                self.transport,
                self.journal,
            ),
            clock=lambda: self.now,
        )

    def send(self, *frames: ToCore) -> None:
        self.transport.inbox.extend(frames)

    def step(self) -> bool:
        busy = self.loop.step()
        self.loop.check()
        self.now += self.step_s
        return busy

    def run(self, *frames: ToCore, limit: int = 5_000) -> None:
        """Steps until every request sent so far has ended."""
        self.send(*frames)
        for _ in range(limit):
            busy = self.step()
            if not busy and not self.loop._open and not self.transport.inbox:
                return
        raise AssertionError("the core did not come to rest")

    def stats(self) -> Stats:
        """A fresh picture of the core."""
        self.now += 2.0
        self.step()
        return [frame for frame in self.transport.sent if isinstance(frame, Stats)][-1]

    def tokens(self, request: str, choice: int = 0) -> list[int]:
        return [
            token
            for frame in self.transport.sent
            if isinstance(frame, Tokens) and (frame.request, frame.choice) == (request, choice)
            for token in frame.tokens
        ]

    def ended(self, request: str) -> Ended:
        (frame,) = [f for f in self.transport.sent if isinstance(f, Ended) and f.request == request]
        return frame

    def all_ended(self) -> list[Ended]:
        return [f for f in self.transport.sent if isinstance(f, Ended)]

    def lines(self) -> list[JournalLine]:
        return JournalReader(self.directory).read(0, 100_000).lines

    def close(self) -> None:
        self.journal.close()


def adapter(name: str, owner: str = "owner") -> AdapterRef:
    return AdapterRef(artefact=name, owner=owner)


@dataclass(frozen=True)
class Ask:
    """How a test's request differs from the plain one."""

    adapter: str | None = None
    max_tokens: int = 8
    choices: int = 1
    tenant: str = "tenant"
    salt: str = "salt"
    service_class: ServiceClass = ServiceClass.STANDARD
    deadline_ms: int | None = None
    confirm: bool = False
    sampling: Sampling | None = None
    purpose: Purpose = Purpose.TENANT


def add(request: str, prompt: Sequence[int], ask: Ask = Ask()) -> AddRequest:
    sampling = ask.sampling or Sampling(max_tokens=ask.max_tokens, seed=1, temperature=0.0, ignore_eos=True)
    return AddRequest(
        request=request,
        attempt=1,
        tenant=ask.tenant,
        key="key",
        adapter=None if ask.adapter is None else adapter(ask.adapter),
        version="" if ask.adapter is None else "1",
        salt=ask.salt,
        prompt=list(prompt),
        sampling=sampling,
        num_choices=ask.choices,
        service_class=ask.service_class,
        deadline_ms=ask.deadline_ms,
        confirm_choices=ask.confirm,
        purpose=ask.purpose,
    )
