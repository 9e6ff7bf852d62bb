"""The columns of a ledger row, shared by the ledger and the table it is loaded through."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column


class UsageColumns:
    """One attempt that reached a replica, or one cache hit. No foreign keys: what happened is kept
    whatever is deleted."""

    request_id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7: also the partition key
    attempt: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    tenant_id: Mapped[UUID]
    key_id: Mapped[str]
    base_id: Mapped[str]
    adapter_name: Mapped[str | None]  # null = the base itself, here and in the next three
    adapter_version: Mapped[int | None]
    artefact: Mapped[str | None]
    owner_id: Mapped[UUID | None]
    source: Mapped[str]  # engine | cache
    purpose: Mapped[str]  # tenant | probe | proof | warmup
    outcome: Mapped[str]
    prompt_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    cached_tokens: Mapped[int]  # of the prompt, found in the prefix cache
    billed_prompt_tokens: Mapped[int]
    billed_completion_tokens: Mapped[int]
    billed_cached_tokens: Mapped[int]
    queue_ms: Mapped[int | None]
    load_ms: Mapped[int | None]
    ttft_ms: Mapped[int | None]
    total_ms: Mapped[int | None]
    tier: Mapped[str | None]
    service_class: Mapped[str] = mapped_column(server_default=text("'standard'"))
    replica: Mapped[str | None]
    price_book_version: Mapped[int | None]
    client_request_id: Mapped[str | None]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime]
