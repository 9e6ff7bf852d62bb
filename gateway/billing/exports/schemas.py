"""Wire types of exports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.billing.months import month_text
from gateway.models import BillingExport
from gateway.paging import Page

MonthText = Annotated[str, Meta(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$", description="UTC, as 2026-11.")]
File = Literal["csv", "parquet", "manifest"]
ExportState = Literal["waiting", "done", "failed", "superseded"]


class ExportIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    month: MonthText


class ExportOut(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is a hash of what is in it: who asks again before there is anything new gets the same export, byte
    for byte. `period` open: a snapshot, which a later one supersedes."""

    id: str
    tenant: UUID | None  # null = all tenants
    month: str
    period: Literal["open", "closed"]
    state: ExportState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, export: BillingExport) -> ExportOut:
        return msgspec.convert(
            {
                "id": export.id,
                "tenant": export.tenant_id,
                "month": month_text(export.month),
                "period": "closed" if export.closed else "open",
                "state": export.state,
                "reason": export.reason,
                "created_at": export.created_at,
                "finished_at": export.finished_at,
            },
            cls,
        )


class ExportPage(Page[ExportOut], frozen=True, kw_only=True):
    data: list[ExportOut]
    next: str | None
