"""The frames between the engine server and the engine core: the only things that cross that process border.

Every frame is a frozen, tagged msgspec struct; receivers match on the type with a default arm that raises.
Ownership: the server owns text and sockets; the core owns tokens, KV blocks, slots, counts and the journal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Union

import msgspec

from engine.core.adapter_state import AdapterSnapshot
from engine.core.queue_state import Queue
from engine.core.step_figures import StepState


class Outcome(StrEnum):
    """Why a request ended. Every accepted request ends with exactly one of these."""

    FINISHED = "finished"  # every choice reached a stop, an end token or its length
    ABORTED = "aborted"  # the client left, or the gateway asked
    ADAPTER_FAILED = "adapter_failed"  # its adapter could not be loaded
    NOT_FINITE = "not_finite"  # a row of its adapter held a number that is none: no other replica would help
    REFUSED = "refused"  # the core could never have served it (longer than the whole KV cache, queue full)
    EXPIRED = "expired"  # its deadline passed before its first token
    CORE_FAILED = "core_failed"  # its row failed alone, the replica stops, or the core died (says the server)


class FinishReason(StrEnum):
    """Why one choice ended; the wire's `finish_reason` (OpenAI publishes no value for a cut choice)."""

    STOP = "stop"
    LENGTH = "length"


class Purpose(StrEnum):
    TENANT = "tenant"
    PROBE = "probe"
    PROOF = "proof"
    WARMUP = "warmup"


class ServiceClass(StrEnum):
    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How each next token is chosen. Names are vLLM's where OpenAI has none.

    `seed` is always set here (the server draws one where the client gave none), so that sampling is a pure
    function of (seed, choice index, number of tokens generated): preemption and batching can't change it.
    """

    max_tokens: int  # most tokens to generate, >= 1
    seed: int  # 64 bit, unsigned
    temperature: float = 1.0  # 0 = greedy, exact argmax, lowest id wins a tie
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    min_tokens: int = 0  # end and stop tokens can't be sampled before this many
    stop_token_ids: tuple[int, ...] = ()  # beyond the model's own end tokens
    ignore_eos: bool = False
    logprobs: int | None = None  # None = none; 0 = the chosen token's; k = and the k best
    prompt_logprobs: bool = False  # `/v1/completions` with echo and logprobs

    @property
    def has_penalties(self) -> bool:
        """Whether the tokens so far change how the next is chosen."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


class AdapterRef(msgspec.Struct, frozen=True):
    """Names an adapter below the catalog: by content and owner only, never by a tenant's name for it."""

    artefact: str  # artefact id, 64 hex
    owner: str  # owner tenant id, which with `artefact` gives the store path


class AddRequest(msgspec.Struct, frozen=True, tag="add"):
    """One attempt at one request. The core answers with `Tokens*` and exactly one `Ended`."""

    request: str  # request id (UUIDv7)
    attempt: int
    tenant: str  # who asks: goes into KV keys (with `salt`) and the journal
    key: str  # API key id, for the journal
    adapter: AdapterRef | None  # None = base
    version: str  # adapter version as the gateway names it ("" = base), for the journal
    salt: str  # tenant's KV salt
    prompt: list[int]  # token ids, at least one
    sampling: Sampling
    num_choices: int = 1  # n
    purpose: Purpose = Purpose.TENANT
    service_class: ServiceClass = ServiceClass.STANDARD
    deadline_ms: int | None = None  # from arrival to first token
    confirm_choices: bool = False
    """Set when the server looks for stop strings. A choice that ends by itself is then counted only once the
    server has said with `StopChoice` how many of its tokens stand (all, or up to the stop string), so that no
    token after a stop string is ever billed, whichever end came first. The core waits 5 s for it."""

    @property
    def yields(self) -> bool:
        """Whether it takes only what nobody else would miss (docs/decisions/0082): a proof."""
        return self.purpose is Purpose.PROOF


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Free everything of `request` in the next step; `Ended(ABORTED)` acknowledges with the final usage."""

    request: str
    attempt: int


class StopChoice(msgspec.Struct, frozen=True, tag="stop_choice"):
    """The choice ends with `num_tokens` generated, whatever came after: a stop string was found there, or
    (see `AddRequest.confirm_choices`) it ended by itself and no stop string was found. No `Tokens` frame
    follows."""

    request: str
    attempt: int
    choice: int
    num_tokens: int


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    """Bring an adapter to host memory if it isn't there; a hint, never an error to a request."""

    adapter: AdapterRef
    within_ms: int | None = None  # its first use is expected by then; a load not begun by then is dropped
    keep_ms: int | None = (
        None  # from now on, its place in memory goes to others last (see `Entry.placed_until`)
    )
    on_device: bool = False  # kept so in a slot, too, and put into one that is free


class Retire(msgspec.Struct, frozen=True, tag="retire"):
    """Forget an adapter in slots, host memory and disk cache as soon as nothing runs on it."""

    adapter: AdapterRef


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """End what is left, which is the replica's doing and bills nothing, flush the journal and exit 0."""


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Where is this adapter, and what holds it? Answered by one `Residency`."""

    artefact: str


ToCore = Union[AddRequest, Abort, StopChoice, Prefetch, Retire, Drain, Look]  # noqa: UP007  (a runtime type for msgspec)


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Log-probability of the chosen token and of the best, after penalties and bias, before truncation."""

    token: int
    logprob: float
    top: list[tuple[int, float]]  # best first


class Usage(msgspec.Struct, frozen=True):
    """The one count of a request's tokens. `prompt` is counted once whatever n is."""

    prompt: int
    completion: int  # generated tokens over all choices, end token included
    cached: int  # prompt tokens whose KV came from the prefix cache


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds, by the core's clock."""

    queue_ms: float  # arrival to first scheduled
    load_ms: float  # part of queue_ms spent waiting for the adapter
    ttft_ms: float | None  # arrival to first token; None when there was none
    total_ms: float


class Tier(StrEnum):
    """Where the adapter was found when the request arrived."""

    BASE = "base"  # no adapter
    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    STORE = "store"


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    """New tokens of one choice. `finish` is set on the choice's last frame."""

    request: str
    attempt: int
    choice: int
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None  # as many as tokens, when asked for
    finish: FinishReason | None = None
    stop_token: int | None = None  # the end or stop token that ended it (it is in `tokens` too)
    prompt_logprobs: list[TokenLogprob | None] | None = None  # with choice 0's first frame, when asked for


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The one terminal frame of an attempt, sent after its journal line was written."""

    request: str
    attempt: int
    outcome: Outcome
    usage: Usage
    timings: Timings
    tier: Tier
    reason: str = ""  # a sentence for a person, when the outcome is not FINISHED
    not_finite: bool = False  # a row of it held NaN or infinity
    run_ms: float = 0.0  # its part, by tokens, of the steps that it was in; counted for proofs only


class AdapterEvent(msgspec.Struct, frozen=True, tag="adapter"):
    """An adapter reached a tier, left the engine (`tier` None), or failed to load (`error`)."""

    artefact: str
    tier: Tier | None
    num_bytes: int = 0
    load_ms: float = 0.0
    error: str = ""
    is_fault: bool = False  # with `error`: the adapter's own, whatever the store and this replica's load
    found_in: Tier | None = None  # when a load has just ended: where it was


class Residency(msgspec.Struct, frozen=True, tag="residency"):
    """What the core holds of an adapter at this moment."""

    artefact: str
    device: bool  # in a slot
    host: bool  # in host memory
    loading: bool
    requests: int  # open ones that want it
    running: int  # sequences on it


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """A picture of the core, sent at least every 250 ms while it works and every second when idle.

    Counters (`*_total`, and those in `adapters`) only grow while the process lives.
    """

    sequence: int
    running: int
    waiting: int
    waiting_tokens: int
    blocks_total: int
    blocks_used: int  # referenced by running requests
    blocks_cached: int  # unreferenced, kept for prefix hits
    blocks_free: int  # hold nothing
    device: list[str]  # artefacts in slots
    host: list[str]  # artefacts in host memory, those in slots included
    steps_total: int
    prompt_tokens_total: int  # computed, cached ones excluded
    generation_tokens_total: int
    cache_query_tokens_total: int
    cache_hit_tokens_total: int
    preemptions_total: int
    adapter_loads_total: dict[str, int]  # by tier it came from
    adapter_hits_total: int
    adapter_evictions_total: dict[str, int]  # by tier it left
    step_seconds_total: float  # on the runner
    host_seconds_total: float  # in the core's own thread
    queue: Queue
    adapters: AdapterSnapshot
    steps: StepState


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The core holds its model and takes requests."""

    base_id: str
    base_digest: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: list[int]
    num_blocks: int
    block_size: int
    num_slots: int
    max_running: int  # sequences in one step
    journal_id: str  # changes only when the journal starts afresh


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The core can't go on. The server answers every open request with an error and exits non-zero."""

    reason: str


FromCore = Union[Tokens, Ended, AdapterEvent, Residency, Stats, Ready, Failed]  # noqa: UP007
