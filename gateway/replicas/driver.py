"""What the gateway asks of a replica, whatever engine it is. `drivers/` holds one implementation an
engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

# What a replica says comes to lie beside what others said: one value that the ledger can't hold would keep
# back every row that is written with it.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[float, Meta(ge=-1e12, le=1e12)]
Word = Annotated[str, Meta(pattern=r"\A[a-z_]{1,32}\Z")]
MaybeWord = Annotated[str, Meta(pattern=r"\A[a-z_]{0,32}\Z")]
Printable = Annotated[str, Meta(pattern=r"\A[\x20-\x7e]{0,320}\Z")]


class EngineUsage(msgspec.Struct, frozen=True):
    """Tokens of one attempt, by the engine's own count."""

    prompt: Count
    completion: Count
    cached: Count

    @property
    def total(self) -> int:
        return self.prompt + self.completion


class EngineTimings(msgspec.Struct, frozen=True):
    """Milliseconds."""

    queue_ms: Milliseconds = 0.0
    load_ms: Milliseconds = 0.0
    ttft_ms: Milliseconds | None = None
    total_ms: Milliseconds = 0.0


class Trailer(msgspec.Struct, frozen=True):
    """How an attempt ended, in the engine's words: the last frame of a stream, or a header of a unary
    answer."""

    usage: EngineUsage
    timings: EngineTimings
    outcome: Word
    tier: MaybeWord = ""
    reason: str = ""

    @property
    def finished(self) -> bool:
        return self.outcome == "finished"


class JournalLine(msgspec.Struct, frozen=True):
    """One line of an engine's usage journal (docs/ARCHITECTURE.md, seams)."""

    n: Annotated[int, Meta(ge=1, le=2**53)]
    request: Printable
    attempt: Annotated[int, Meta(ge=0, le=2**15 - 1)]
    tenant: Printable
    key: Printable
    outcome: Word
    prompt: Count
    completion: Count
    cached: Count
    ended_at: Printable
    purpose: Literal["tenant", "probe", "proof", "warmup"] = "tenant"
    artefact: Printable | None = None
    owner: Printable | None = None
    version: Printable = ""
    queue_ms: Milliseconds | None = None
    load_ms: Milliseconds | None = None
    ttft_ms: Milliseconds | None = None
    total_ms: Milliseconds | None = None
    tier: MaybeWord = ""
    service_class: Word = "standard"


class JournalPage(msgspec.Struct, frozen=True):
    journal_id: Printable
    lines: list[JournalLine]
    next: int


class Check(msgspec.Struct, frozen=True):
    """One check of a proof, in the engine's words. `figure` is what was measured, `bound` what it was held
    to."""

    name: Word
    passed: bool
    figure: float | None = None
    bound: float | None = None
    message: Annotated[str, Meta(max_length=2_000)] = ""


class EngineVerdict(msgspec.Struct, frozen=True):
    """What a replica found of an artefact. `passed` False is said of the adapter, never of the replica."""

    artefact: Printable
    base_digest: Printable
    passed: bool
    checks: Annotated[list[Check], Meta(max_length=64)]
    load_ms: Milliseconds = 0.0
    tier: MaybeWord = ""
    replica_ms: Milliseconds = 0.0  # of its steps
    total_ms: Milliseconds = 0.0


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What a replica says of itself: residency and load, for the router."""

    device: frozenset[str] = frozenset()
    host: frozenset[str] = frozenset()
    waiting_tokens: int = 0
    running: int = 0
    waiting: int = 0
    base_id: str | None = None
    base_digest: str | None = None  # weights, dtype and quantization; None = it doesn't say
    ready: bool = True
    num_slots: int | None = None  # for adapters; None = it doesn't say, and so below
    kv_blocks: int | None = None
    kv_blocks_used: int | None = None  # by running requests
    sequence: int = 0  # of this picture, in the replica's present life; 0 = it doesn't say


class Purge(Enum):
    """What a replica says of the bytes of an adapter that it was asked to purge."""

    DONE = "done"  # none is left on any of its tiers
    HELD = "held"  # something runs on it, or it can't purge now: ask again
    UNVERIFIED = "unverified"  # it forgets it, but can't tell what its disk holds


class UpstreamFailed(Exception):
    """The replica can't be reached, broke off, or was silent for too long. Nothing says what it computed.

    `sent` False: no connection was made, so it can't have computed anything. `blames` False: the replica is
    well (an adapter it can't load must not take it from others).
    """

    def __init__(self, message: str, *, sent: bool = True, blames: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        self.blames = blames


class NoVerdict(UpstreamFailed):
    """The replica can't prove anything now: busy, draining, its store away, out of time. Says nothing of the
    adapter. `code` is the replica's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, blames=False)
        self.code = code


class Upstream(Protocol):
    """An answer that has begun: status and headers are there, its body is still coming."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_some(self, timeout_s: float, straight: Callable[[bytes], bool] | None = None) -> bytes:
        """The next bytes as they came, b"" at the proper end.

        While it waits, bytes are offered to `straight` as they come; those that it takes (True) are not
        read. Raises `UpstreamFailed`, and `TimeoutError` when nothing came for so long (reading may go on
        after that).
        """
        ...

    async def close(self) -> None:
        """Idempotent; drops the connection if the body is not over."""
        ...


class Driver(Protocol):
    async def open(
        self, path: str, body: bytes, headers: Mapping[str, str], first_byte_timeout_s: float
    ) -> Upstream:
        """Sends a request; raises `UpstreamFailed`."""
        ...

    async def abort(self, request_id: str, attempt: int) -> Trailer | None:
        """Stops an attempt and waits for the engine's final count. None: the engine never saw it.

        Raises `UpstreamFailed` when no answer is to be had.
        """
        ...

    async def prefetch(self, artefact: str, owner: str) -> None:
        """A hint that the adapter is about to be used; raises `UpstreamFailed`."""
        ...

    async def prove(self, artefact: str, owner: str, longest: bool) -> EngineVerdict:
        """Proves the adapter off the serving path; with `longest` at the longest context, too. Raises
        `NoVerdict`, and `UpstreamFailed` when no answer is to be had."""
        ...

    async def keep(self, artefact: str, owner: str, keep_ms: int, *, on_device: bool) -> None:
        """As `prefetch`, with the wish that it stays there for so long, in a slot too if `on_device`; to be
        asked again before that is over. Raises `UpstreamFailed`."""
        ...

    async def retire(self, artefact: str, owner: str) -> None:
        """The adapter is wanted no more: forget it once nothing runs on it; raises `UpstreamFailed`."""
        ...

    async def purge(self, artefact: str, owner: str) -> Purge:
        """No byte of the adapter may be left there, and the replica is asked afterwards whether any is.
        Raises `UpstreamFailed`; with `sent` False, nobody answers there."""
        ...

    async def ready(self) -> bool:
        """Whether it takes requests; raises `UpstreamFailed`."""
        ...

    async def view(self) -> ReplicaView:
        """Raises `UpstreamFailed`."""
        ...

    def views(self) -> AsyncIterator[ReplicaView]:
        """Every state from now on, as it changes; ends at once where there is no such stream. Raises
        `UpstreamFailed` when it breaks off or falls silent."""
        ...

    async def journal(self, after: int, limit: int) -> JournalPage:
        """Lines with `n` > after, in order; raises `UpstreamFailed`."""
        ...


class _Stats(msgspec.Struct):
    device: frozenset[str] = frozenset()
    host: frozenset[str] = frozenset()
    waiting_tokens: int = 0
    running: int = 0
    waiting: int = 0
    blocks_total: int | None = None
    blocks_used: int | None = None


class _Core(msgspec.Struct):
    num_slots: int | None = None


class _State(_Stats):
    sequence: int = 0
    core: _Core | None = None
    stats: _Stats | None = None
    base_id: str | None = None
    base_digest: str | None = None
    ready: bool = True
    draining: bool = False


_STATE = msgspec.json.Decoder(_State)


def read_view(state: bytes) -> ReplicaView:
    """The router's picture out of an engine's `/internal/state`, whose figures lie in a `stats` object or
    flat. Raises `msgspec.MsgspecError`."""
    said = _STATE.decode(state)
    stats = said.stats if said.stats is not None else said
    return ReplicaView(
        device=stats.device,
        host=stats.host,
        waiting_tokens=stats.waiting_tokens,
        running=stats.running,
        waiting=stats.waiting,
        base_id=said.base_id,
        base_digest=said.base_digest,
        ready=said.ready and not said.draining,
        num_slots=said.core.num_slots if said.core is not None else None,
        kv_blocks=stats.blocks_total,
        kv_blocks_used=stats.blocks_used,
        sequence=said.sequence,
    )
