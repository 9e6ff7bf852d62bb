"""Wire types of exports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import TENANT, Call, allowed
from gateway.billing.months import month_text
from gateway.models import BillingExport
from gateway.paging import Page
from gateway.principal import Role

MonthText = Annotated[str, Meta(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$", description="UTC, as 2026-11.")]
File = Literal["csv", "parquet", "manifest"]
ExportState = Literal["waiting", "done", "failed", "superseded"]


class Failure(StrEnum):
    """Why an export could not be made."""

    TOO_LARGE = "too_large"  # more rows than a file may have: ask for one tenant's
    SUMS_DIFFER = "sums_differ"  # the rows do not come to what was charged: a fault, and nothing is given out
    BYTES_DIFFER = "bytes_differ"  # another release made it before, with other bytes
    FAULT = "fault"  # control's log says which


ExportAction = Literal["download"]
ACTIONS: Final[Mapping[ExportAction, Call]] = {
    "download": Call("GET", f"{TENANT}/billing/exports/{{export_id}}/file")
}


class ExportFile(msgspec.Struct, frozen=True, kw_only=True):
    kind: File
    name: str
    bytes: int
    sha256: str
    rows: int


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
    failure: Failure | None
    reason: str | None
    requested_by: str
    created_at: datetime
    finished_at: datetime | None
    complete_until: datetime | None  # as far as it was known when it was made
    billed: dict[str, str]  # what its rows come to, by currency; exact
    files: list[ExportFile]  # once it is done; the manifest names both, and itself stands in neither
    can: list[ExportAction]

    @classmethod
    def of(cls, export: BillingExport, role: Role | None) -> ExportOut:
        done = export.state == "done" and export.manifest is not None
        manifest: dict[str, Any] = msgspec.json.decode(export.manifest) if done and export.manifest else {}
        return msgspec.convert(
            {
                "id": export.id,
                "tenant": export.tenant_id,
                "month": month_text(export.month),
                "period": "closed" if export.closed else "open",
                "state": export.state,
                "failure": export.failure,
                "reason": export.reason,
                "requested_by": export.requested_by,
                "created_at": export.created_at,
                "finished_at": export.finished_at,
                "complete_until": manifest.get("complete_until"),
                "billed": manifest.get("billed", {}),
                "files": [
                    {**each, "kind": str(each["name"]).rpartition(".")[2]}
                    for each in manifest.get("files", [])
                ],
                "can": allowed(ACTIONS, role, without=() if done else ("download",)),
            },
            cls,
        )


class ExportPage(Page[ExportOut], frozen=True, kw_only=True):
    data: list[ExportOut]
    next: str | None
