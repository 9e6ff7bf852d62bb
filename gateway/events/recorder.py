"""Takes the end of each request, at once and in memory only: a few microseconds, and never an error of its
client's.

The ring holds what PostgreSQL has not got yet; when it is full, the oldest goes and is counted.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from adapters.wire import ChatRequest, CompletionRequest
from gateway.envelope import client_request_id_of, request_id_of
from gateway.events.budget import Budget
from gateway.events.event import Outcome, RequestEvent
from gateway.events.metrics import FAILED, OVERFLOWED, SAMPLED
from gateway.events.trace import Step, Trace
from gateway.events.verdict import LIMIT_STATUS, QUEUE_CODES, Verdict, verdict_of
from gateway.traffic.histograms import bucket_of
from gateway.traffic.minute import BASE, COUNTS, MINUTE_S, UNRESOLVED, Measured

if TYPE_CHECKING:
    from litestar.types import Scope

    from gateway.principal import Principal
    from gateway.traffic.tally import Tally

log = structlog.get_logger(__name__)

RING: Final = 10_000
"""Events, about 2 KB each."""

RETRIES: Final = b"x-stainless-retry-count"

_FIELDS: Final = frozenset(
    field.encode_name for wire in (ChatRequest, CompletionRequest) for field in msgspec.structs.fields(wire)
)
_PARAM = re.compile(r"([a-z_]+)[a-z0-9_.\[\]-]{0,63}")


class Recorder:
    """One per worker. `most_a_minute`: events of one tenant that it keeps whole (`budget.py`)."""

    def __init__(self, tally: Tally, *, most_a_minute: int, ring: int = RING) -> None:
        self.tally = tally
        self.ring: deque[RequestEvent] = deque()
        self._size = ring
        self._budget = Budget(most_a_minute)

    def note(self, scope: Scope, principal: Principal, trace: Trace) -> None:
        """Called once for each request whose key is known, when all is over. Never raises: a fault here is
        said, and is not its client's."""
        try:
            self._note(scope, principal, trace)
        except Exception:
            FAILED.inc()
            log.exception("request_not_remembered")

    def _note(self, scope: Scope, principal: Principal, trace: Trace) -> None:
        trace.close()
        trace.principal = trace.principal or principal
        verdict = verdict_of(trace)
        ended_at = trace.metered.ended_at if trace.metered is not None else datetime.now(UTC)
        minute = int(ended_at.timestamp() // MINUTE_S)
        self.tally.add(minute, principal.tenant, _adapter(trace), _measured(trace, verdict))
        refused = verdict.outcome is Outcome.REFUSED
        stands_for = self._budget.stands_for(minute, principal.tenant, refused)
        if not stands_for:
            SAMPLED.inc()
            return
        event = _event(scope, trace, verdict, ended_at)
        event.stands_for = stands_for
        self.put(event)

    def put(self, event: RequestEvent) -> None:
        if len(self.ring) >= self._size:
            self.ring.popleft()
            OVERFLOWED.inc()
        self.ring.append(event)

    def put_back(self, events: list[RequestEvent]) -> None:
        """Those that could not be written, as the oldest; what there is no room for goes."""
        room = self._size - len(self.ring)
        kept = events[max(0, len(events) - room) :] if room > 0 else []
        OVERFLOWED.inc(len(events) - len(kept))
        self.ring.extendleft(reversed(kept))


def _adapter(trace: Trace) -> str:
    resolved = trace.resolved
    if resolved is not None and resolved.adapter is not None and resolved.adapter.owner_name is not None:
        return resolved.adapter.label  # an adapter of its own may have the same name
    if (metered := trace.metered) is not None:
        return metered.adapter_name or BASE
    if resolved is None:
        return UNRESOLVED
    return resolved.adapter.name if resolved.adapter is not None else BASE


def _measured(trace: Trace, verdict: Verdict) -> Measured:
    spent = trace.spent_s
    total_s = sum(spent)
    queue_s, stream_s = spent[Step.QUEUE], spent[Step.STREAM]
    ttft = queue = None
    if queue_s:
        queue = bucket_of(queue_s * 1e3)
    if stream_s:  # a stream whose first bytes came
        ttft = bucket_of((total_s - stream_s - spent[Step.END]) * 1e3)
    buckets = (ttft, _inter_token(trace), queue, bucket_of(total_s * 1e3))
    metered = trace.metered
    if metered is None:
        return Measured(_place(verdict), buckets)
    tokens = (
        metered.billed_prompt_tokens,
        metered.billed_completion_tokens,
        metered.billed_cached_tokens,
    )
    return Measured(_place(verdict), buckets, tokens)


def _inter_token(trace: Trace) -> int | None:
    """The mean between the tokens of one choice, by the replica's clock."""
    metered, request = trace.metered, trace.request
    if metered is None or request is None or metered.ttft_ms is None or metered.total_ms is None:
        return None
    gaps = metered.completion_tokens / request.num_choices - 1
    if gaps <= 0 or metered.total_ms < metered.ttft_ms:
        return None
    return bucket_of((metered.total_ms - metered.ttft_ms) / gaps)


def _place(verdict: Verdict) -> int:
    """In `COUNTS`."""
    if verdict.outcome is not Outcome.REFUSED:
        return _PLACES[verdict.outcome]
    if verdict.status == LIMIT_STATUS:
        return _BY_LIMIT
    return _BY_QUEUE if verdict.code in QUEUE_CODES else _OTHERWISE


_PLACES: Final = {
    outcome: COUNTS.index(outcome.value) for outcome in Outcome if outcome is not Outcome.REFUSED
}
_BY_LIMIT, _BY_QUEUE, _OTHERWISE = (
    COUNTS.index(f"refused_{how}") for how in ("by_limit", "by_queue", "otherwise")
)


def _event(scope: Scope, trace: Trace, verdict: Verdict, ended_at: datetime) -> RequestEvent:
    principal = trace.principal
    assert principal is not None
    request_id = request_id_of(scope)
    event = RequestEvent(
        request_id=request_id,
        tenant_id=principal.tenant,
        key_id=principal.key_id,
        endpoint=scope["path"].rstrip("/"),  # the router knew it
        service_class=principal.service_class,
        outcome=verdict.outcome,
        at_step=(trace.at if verdict.outcome is Outcome.SERVED else trace.reached).name.lower(),
        ended_at=ended_at,
        total_ms=_ms(sum(trace.spent_s)),
        status=verdict.status,
        error_code=verdict.code,
        attempts=trace.attempts,
        replica=trace.replica,
        client_request_id=client_request_id_of(scope),
        client_retries=_retries(scope),
        original_request_id=trace.original if trace.original != request_id else None,
        held_back=trace.held_back,
        prompt_tokens=trace.prompt_tokens,
    )
    _put_steps(event, trace)
    _put_request(event, trace)
    _put_refusal(event, trace)
    _put_metered(event, trace)
    return event


def _put_steps(event: RequestEvent, trace: Trace) -> None:
    spent = trace.spent_s
    event.auth_ms = _ms(spent[0])
    event.limits_ms = _ms(spent[1])
    for step, name in _LATER_STEPS:
        if (seconds := spent[step]) > 0:
            setattr(event, name, round(seconds * 1e3, 3))


_LATER_STEPS: Final = tuple((int(step), f"{step.name.lower()}_ms") for step in Step if step > Step.LIMITS)


def _put_request(event: RequestEvent, trace: Trace) -> None:
    if (request := trace.request) is not None:
        event.stream = request.streaming
        event.model = request.model if trace.resolved is not None else None
    if (resolved := trace.resolved) is not None:
        event.base_id = resolved.base_id
        if (adapter := resolved.adapter) is not None:
            event.adapter_name, event.adapter_version = adapter.name, adapter.version
            event.artefact, event.owner_id = adapter.artefact, adapter.owner


def _put_refusal(event: RequestEvent, trace: Trace) -> None:
    if (error := trace.error) is None:
        return
    named = _PARAM.fullmatch(error.param or "")
    if named is not None and named[1] in _FIELDS:  # what a client made up may be anything, a secret too
        event.error_param = error.param
    if (wait_ms := error.headers.get("retry-after-ms")) is not None:
        event.retry_after_ms = int(wait_ms)
    if (refusal := error.refusal) is not None:
        event.refused_by, event.refused_limit = refusal.by, _kept(refusal.limit)
        event.refused_needed, event.refused_available = _kept(refusal.needed), _kept(refusal.available)


def _kept(number: int | None) -> int | None:
    """None for what no column holds: a client may announce any length, and a budget be of any size."""
    return number if number is not None and abs(number) < 2**63 else None


def _put_metered(event: RequestEvent, trace: Trace) -> None:
    """The row of its last attempt: the ledger's and this one say the same."""
    if (row := trace.metered) is None:
        return
    event.prompt_tokens, event.completion_tokens = row.prompt_tokens, row.completion_tokens
    event.cached_tokens = row.cached_tokens
    event.billed = bool(row.billed_prompt_tokens or row.billed_completion_tokens)
    event.adapter_name, event.adapter_version = row.adapter_name, row.adapter_version
    event.artefact, event.owner_id = row.artefact, row.owner_id
    event.tier = row.tier
    if row.source == "engine":
        event.engine_queue_ms, event.engine_load_ms = row.queue_ms, row.load_ms
        event.engine_ttft_ms, event.engine_total_ms = row.ttft_ms, row.total_ms


def _retries(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == RETRIES:
            return int(value) if value.isdigit() and len(value) <= 3 else None
    return None


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
