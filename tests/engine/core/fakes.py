"""Stands in for the numerics, the loader threads and the socket, so that the core can be driven by hand.

The fake runner is a pure function: it keeps what each block position was written with, reads it back through
the block table, and derives the next token from all tokens and the adapter in the row's slot. A wrong block,
position, slot or share of a prefix therefore changes the answer.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.core.adapter_loader import LoadDone
from engine.core.journal import Journal, JournalLine
from engine.core.journal_reader import JournalReader
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.plan import BASE_SLOT, LoadedAdapter, Row, RowResult, StepPlan
from engine.core.protocol import (
    AdapterRef,
    AddRequest,
    Ended,
    FromCore,
    Sampling,
    ServiceClass,
    Stats,
    Tier,
    ToCore,
    TokenLogprob,
    Tokens,
)

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
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # (sequence, start, tokens)
    fail_on: set[int] = field(default_factory=set)  # prompts that start with such a token fail
    crash: bool = False
    record: bool = True
    most_tokens: int = 0
    most_adapters: int = 0

    def execute(self, plan: StepPlan) -> list[RowResult]:
        if self.crash:
            raise RuntimeError("the device is lost")
        if self.record:
            self.plans.append(repr(plan))
        self.most_tokens = max(self.most_tokens, plan.num_tokens)
        self.most_adapters = max(self.most_adapters, len({row.slot for row in plan.rows} - {BASE_SLOT}))
        return [result for row in plan.rows if (result := self._run(row)) is not None]

    def install(self, slot: int, adapter: object) -> None:
        assert slot not in self.slots, "a slot is emptied before it is filled"
        assert isinstance(adapter, str)
        self.slots[slot] = adapter

    def clear(self, slot: int) -> None:
        del self.slots[slot]

    def _run(self, row: Row) -> RowResult | None:
        artefact = None if row.slot == BASE_SLOT else self.slots[row.slot]
        self.rows.append((row.sequence, row.start, len(row.tokens)))
        for i, token in enumerate(row.tokens):
            block, offset = divmod(row.start + i, self.block_size)
            self.kv[row.block_table[block], offset] = (token, artefact)
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
        assert seen == [*row.sample.prompt, *row.sample.generated], "KV of other tokens"
        if row.sample.prompt[0] in self.fail_on:
            return RowResult(row.sequence, error="not a number")
        token = next_token(seen, artefact, row.sample.choice, row.sample.banned)
        logprob = None if row.sample.sampling.logprobs is None else TokenLogprob(token, -0.5, [])
        return RowResult(row.sequence, token=token, logprob=logprob, prompt_logprobs=logprobs)


@dataclass
class FakeLoaders:
    """Loads end when `complete` is called, or by themselves at the next poll if `automatic`."""

    automatic: bool = True
    num_bytes: int = 1_000
    failing: set[str] = field(default_factory=set)
    under_way: list[AdapterRef] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    most_under_way: int = 0
    _done: list[LoadDone] = field(default_factory=list)

    def start(self, adapter: AdapterRef) -> None:
        self.under_way.append(adapter)
        self.most_under_way = max(self.most_under_way, len(self.under_way))

    def complete(self, artefact: str) -> None:
        ref = next(ref for ref in self.under_way if ref.artefact == artefact)
        self.under_way.remove(ref)
        if artefact in self.failing:
            self._done.append(LoadDone(ref, None, "corrupt"))
        else:
            self._done.append(LoadDone(ref, LoadedAdapter(artefact, self.num_bytes, Tier.STORE, 1.0)))

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
        self, directory: Path, *, step_s: float = 0.01, model: ModelFacts = MODEL, **limits: float
    ) -> None:
        self.config = CoreConfig(**{"num_blocks": 64, "block_size": 4, "max_running": 16, **limits})  # type: ignore[arg-type]
        self.now = 0.0
        self.step_s = step_s
        self.runner = FakeRunner(self.config.block_size)
        self.loaders = FakeLoaders()
        self.transport = FakeTransport()
        self.directory = directory
        self.journal = Journal(directory)
        self.loop = Loop(
            self.config,
            model,
            Parts(self.runner, self.loaders, self.transport, self.journal),
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
    )
