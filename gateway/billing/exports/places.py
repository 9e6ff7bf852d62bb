"""Where exports lie in the object store, and their ids: a hash of what decides their bytes."""

from __future__ import annotations

import hashlib
from datetime import date
from typing import Any
from uuid import UUID

import msgspec

from gateway.billing.exports.files import MANIFEST
from gateway.billing.exports.focus import SCHEMA
from gateway.billing.months import month_text
from gateway.models import BillingExport


def wanted(issuer: str, tenant: UUID | None, month: date, through: int, closed: bool) -> dict[str, Any]:
    """The columns of an export to be made of the charges of a month up to `through`."""
    parts = [SCHEMA, issuer, None if tenant is None else str(tenant), month_text(month), through, closed]
    return {
        "id": hashlib.sha256(msgspec.json.encode(parts)).hexdigest(),
        "tenant_id": tenant,
        "month": month,
        "through_seq": through,
        "closed": closed,
        "state": "waiting",
    }


def folder_of(export: BillingExport) -> str:
    """All exports of one scope and month: a tenant's lie with its other things."""
    scope = "exports" if export.tenant_id is None else f"tenants/{export.tenant_id}/exports"
    return f"{scope}/{month_text(export.month)}"


def file_path(export: BillingExport, name: str) -> str:
    """Written once."""
    return f"{folder_of(export)}/{export.id}/{name}"


def current_path(export: BillingExport) -> str:
    """The manifest of the month's current export: overwritten while the month is open, and once more when it
    is closed."""
    return f"{folder_of(export)}/{MANIFEST}"
