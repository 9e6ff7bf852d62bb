"""The end of each request, for some days. Partitioned by day, read off the request id's time."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import REAL, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


def _ms() -> Mapped[float | None]:
    return mapped_column(REAL)


class RequestEvent(Base):
    """No foreign keys: what happened is kept whatever is deleted. Meaning of the columns:
    `gateway/events/event.py`."""

    __tablename__ = "request_events"
    __table_args__ = (
        Index("request_events_tenant", "tenant_id", "request_id"),
        Index(
            "request_events_unserved",
            "tenant_id",
            "request_id",
            postgresql_where=text("outcome <> 'served'"),
        ),
        {"postgresql_partition_by": "RANGE (request_id)"},
    )

    request_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    key_id: Mapped[str]
    endpoint: Mapped[str]
    service_class: Mapped[str]
    outcome: Mapped[str]
    at_step: Mapped[str]
    ended_at: Mapped[datetime]
    total_ms: Mapped[float] = mapped_column(REAL)
    stands_for: Mapped[int] = mapped_column(server_default=text("1"))
    status: Mapped[int | None] = mapped_column(SmallInteger)
    error_code: Mapped[str | None]
    error_param: Mapped[str | None]
    refused_by: Mapped[str | None]
    refused_limit: Mapped[int | None]
    refused_needed: Mapped[int | None]
    refused_available: Mapped[int | None]
    retry_after_ms: Mapped[int | None]
    stream: Mapped[bool | None]
    model: Mapped[str | None]
    base_id: Mapped[str | None]
    adapter_name: Mapped[str | None]
    adapter_version: Mapped[int | None]
    artefact: Mapped[str | None]
    owner_id: Mapped[UUID | None]
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    replica: Mapped[str | None]
    client_request_id: Mapped[str | None]
    client_retries: Mapped[int | None] = mapped_column(SmallInteger)
    original_request_id: Mapped[UUID | None]
    held_back: Mapped[str | None]
    prompt_tokens: Mapped[int | None]
    completion_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    billed: Mapped[bool] = mapped_column(server_default=text("false"))
    auth_ms: Mapped[float | None] = _ms()
    limits_ms: Mapped[float | None] = _ms()
    body_ms: Mapped[float | None] = _ms()
    resolve_ms: Mapped[float | None] = _ms()
    kept_ms: Mapped[float | None] = _ms()
    count_ms: Mapped[float | None] = _ms()
    queue_ms: Mapped[float | None] = _ms()
    first_byte_ms: Mapped[float | None] = _ms()
    stream_ms: Mapped[float | None] = _ms()
    end_ms: Mapped[float | None] = _ms()
    engine_queue_ms: Mapped[int | None]
    engine_load_ms: Mapped[int | None]
    engine_ttft_ms: Mapped[int | None]
    engine_total_ms: Mapped[int | None]
    tier: Mapped[str | None]
