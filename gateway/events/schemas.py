"""What is told of requests that ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gateway.events.event import Outcome
from gateway.events.explanation import STEPS, sentence, step_note
from gateway.ids import time_of
from gateway.models import RequestEvent
from gateway.paging import Page


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request in a list. `status` is null when its client had left; `stands_for` is more than 1 in a
    flood, of which not every request is kept."""

    id: UUID
    came_at: datetime
    outcome: Outcome
    status: int | None
    error_code: str | None
    refused_by: str | None
    model: str | None
    adapter: str | None
    version: int | None
    key_id: str
    service_class: str
    stream: bool | None
    total_ms: float
    queue_ms: float | None
    first_byte_ms: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    stands_for: int

    @classmethod
    def of(cls, row: RequestEvent) -> RequestLine:
        return cls(
            id=row.request_id,
            came_at=time_of(row.request_id),
            outcome=Outcome(row.outcome),
            status=row.status,
            error_code=row.error_code,
            refused_by=row.refused_by,
            model=row.model,
            adapter=row.adapter_name,
            version=row.adapter_version,
            key_id=row.key_id,
            service_class=row.service_class,
            stream=row.stream,
            total_ms=round(row.total_ms, 3),
            queue_ms=_ms(row.queue_ms),
            first_byte_ms=_ms(row.first_byte_ms),
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            stands_for=row.stands_for,
        )


class RequestPage(Page[RequestLine], frozen=True, kw_only=True):
    """Newest first, of those that came in [start, end)."""

    data: list[RequestLine]
    start: datetime
    end: datetime


class RequestPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a request is: its story is at `/api/v1/tenants/{tenant}/requests/{id}`."""

    id: UUID
    tenant: UUID


class StepTime(msgspec.Struct, frozen=True):
    """`begins_ms` counts from the first byte of the request's head; a step that is entered twice (limits) has
    one time, where it is first."""

    step: str
    what: str
    begins_ms: float
    ms: float
    note: str | None


class RefusalFacts(msgspec.Struct, frozen=True):
    """`by` names the limit, as `key.requests_per_minute`; numbers are in its unit (milliseconds for
    `queue.forecast` and `queue.deadline`)."""

    by: str | None
    code: str | None
    param: str | None
    limit: int | None
    needed: int | None
    available: int | None
    retry_after_ms: int | None
    retry_at: datetime | None


class EngineTimes(msgspec.Struct, frozen=True):
    """By the replica's own clock, of the last attempt, in milliseconds."""

    queue_ms: int | None
    adapter_load_ms: int | None
    first_token_ms: int | None
    total_ms: int | None
    adapter_tier: str | None  # where its adapter was found


class RequestStory(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused or slow. No prompt, no answer."""

    request: RequestLine
    explanation: str
    ended_at: datetime
    at_step: str  # the last one that it came to
    timeline: list[StepTime]
    refusal: RefusalFacts | None
    engine: EngineTimes | None
    endpoint: str
    base_id: str | None
    artefact: str | None
    replica: str | None
    attempts: int  # at replicas
    client_request_id: str | None
    client_retries: int | None  # as its SDK counted
    original_request_id: UUID | None  # whose answer it got, or as which it went on
    cached_tokens: int | None
    billed: bool

    @classmethod
    def of(cls, row: RequestEvent) -> RequestStory:
        return cls(
            request=RequestLine.of(row),
            explanation=sentence(row),
            ended_at=row.ended_at,
            at_step=row.at_step,
            timeline=_timeline(row),
            refusal=_refusal(row),
            engine=_engine(row),
            endpoint=row.endpoint,
            base_id=row.base_id,
            artefact=row.artefact,
            replica=row.replica,
            attempts=row.attempts,
            client_request_id=row.client_request_id,
            client_retries=row.client_retries,
            original_request_id=row.original_request_id,
            cached_tokens=row.cached_tokens,
            billed=row.billed,
        )


def _ms(kept: float | None) -> float | None:
    """Without the digits that a number kept in four bytes grows when it is read."""
    return None if kept is None else round(kept, 3)


def _timeline(row: RequestEvent) -> list[StepTime]:
    found: list[StepTime] = []
    begins = 0.0
    for step, what in STEPS.items():
        ms = _ms(getattr(row, f"{step}_ms"))
        if ms is not None:
            found.append(StepTime(step, what, round(begins, 3), ms, step_note(row, step)))
            begins += ms
    return found


def _refusal(row: RequestEvent) -> RefusalFacts | None:
    if row.outcome not in (Outcome.REFUSED, Outcome.FAILED):
        return None
    wait_ms = row.retry_after_ms
    return RefusalFacts(
        by=row.refused_by,
        code=row.error_code,
        param=row.error_param,
        limit=row.refused_limit,
        needed=row.refused_needed,
        available=row.refused_available,
        retry_after_ms=wait_ms,
        retry_at=None if wait_ms is None else row.ended_at + timedelta(milliseconds=wait_ms),
    )


def _engine(row: RequestEvent) -> EngineTimes | None:
    if row.engine_total_ms is None:
        return None
    return EngineTimes(
        row.engine_queue_ms, row.engine_load_ms, row.engine_ttft_ms, row.engine_total_ms, row.tier
    )
