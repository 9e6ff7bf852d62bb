"""One request as it is remembered: a row of `request_events`. No prompt, no answer, no header but the
client's request id and its SDK's count of retries."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


class Outcome(StrEnum):
    """What became of a request; a column, and a closed list in the API."""

    SERVED = "served"
    CACHED = "cached"  # out of the response cache
    REPLAYED = "replayed"  # the answer of its first try
    REFUSED = "refused"  # a limit, the queue, or a fault of the request itself
    FAILED = "failed"  # on our side
    CLIENT_LEFT = "client_left"


class RequestEvent(msgspec.Struct, kw_only=True):
    """Names and meaning are the table's columns. `stands_for`: of how many requests of its tenant, kind and
    minute this one was kept. `status` is what the client heard, in a stream that had begun as an error frame;
    None: it had left. `*_ms` is None for a step that the request did not come to."""

    request_id: UUID
    tenant_id: UUID
    key_id: str
    endpoint: str
    service_class: str
    outcome: Outcome
    at_step: str  # `Step`, in lower case: the last one that it came to
    ended_at: datetime
    total_ms: float
    stands_for: int = 1
    status: int | None = None
    error_code: str | None = None
    error_param: str | None = None
    refused_by: str | None = None
    refused_limit: int | None = None
    refused_needed: int | None = None
    refused_available: int | None = None
    retry_after_ms: int | None = None
    stream: bool | None = None  # None: refused before it was read
    model: str | None = None  # as the client wrote it, where there is one of that name for it
    base_id: str | None = None
    adapter_name: str | None = None
    adapter_version: int | None = None
    artefact: str | None = None
    owner_id: UUID | None = None
    attempts: int = 0
    replica: str | None = None
    client_request_id: str | None = None
    client_retries: int | None = None
    original_request_id: UUID | None = None
    held_back: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    billed: bool = False
    auth_ms: float | None = None
    limits_ms: float | None = None
    body_ms: float | None = None
    resolve_ms: float | None = None
    kept_ms: float | None = None
    count_ms: float | None = None
    queue_ms: float | None = None
    first_byte_ms: float | None = None
    stream_ms: float | None = None
    end_ms: float | None = None
    engine_queue_ms: int | None = None
    engine_load_ms: int | None = None
    engine_ttft_ms: int | None = None
    engine_total_ms: int | None = None
    tier: str | None = None


COLUMNS: tuple[str, ...] = RequestEvent.__struct_fields__
