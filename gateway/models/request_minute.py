"""Figures of requests by minute, tenant and adapter, as each worker counted them; later by the hour."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


def _buckets() -> Mapped[list[int]]:
    return mapped_column(ARRAY(Integer))


class RequestMinute(Base):
    """One worker's part of [at, at + span_s). The worker writes the whole of its part anew under a greater
    `sequence`, so that nothing is ever added twice. Histograms: `gateway/traffic/histograms.py`."""

    __tablename__ = "request_minutes"
    __table_args__ = (
        Index("request_minutes_at", "at"),
        Index("request_minutes_span", "span_s", "at"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)  # or `PLATFORM` of `gateway/traffic/minute.py`
    at: Mapped[datetime] = mapped_column(primary_key=True)
    adapter: Mapped[str] = mapped_column(primary_key=True)  # a name, or one of `gateway/traffic/minute.py`
    source: Mapped[UUID] = mapped_column(primary_key=True)  # a worker's life; zero: a sum of all
    sequence: Mapped[int]
    span_s: Mapped[int] = mapped_column(Integer)
    served: Mapped[int]
    cached: Mapped[int]
    replayed: Mapped[int]
    refused_by_limit: Mapped[int]
    refused_by_queue: Mapped[int]
    refused_otherwise: Mapped[int]
    failed: Mapped[int]
    client_left: Mapped[int]
    prompt_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    ttft: Mapped[list[int]] = _buckets()
    inter_token: Mapped[list[int]] = _buckets()
    queue: Mapped[list[int]] = _buckets()
    total: Mapped[list[int]] = _buckets()
