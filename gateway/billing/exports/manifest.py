"""What an export holds, in one JSON document that is written after everything that it names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.billing.exports.files import Written
from gateway.billing.exports.focus import COLUMNS, FOCUS_COLUMNS, FOCUS_VERSION, SCHEMA, Row
from gateway.billing.money import amount_text, units_of
from gateway.billing.months import end_of, month_text, start_of
from gateway.models import BillingExport


@dataclass(slots=True)
class Sums:
    """What the rows come to, counted as they are written."""

    rows: int = 0
    requests: int = 0
    units: Counter[str] = field(default_factory=Counter)  # by currency, of 10⁻¹²
    tokens: Counter[str] = field(default_factory=Counter)  # by meter
    versions: set[int] = field(default_factory=set)
    first_seq: int | None = None

    def add(self, row: Row) -> None:
        self.rows += 1
        self.requests += _whole(row["x_RequestCount"])
        self.units[str(row["BillingCurrency"])] += units_of(str(row["BilledCost"]))
        if row["SkuMeter"] is not None:
            self.tokens[str(row["SkuMeter"])] += _whole(row["ConsumedQuantity"])
            self.versions.add(_whole(row["x_PriceBookVersion"]))
            first = _whole(row["x_LedgerSeqFrom"])
            self.first_seq = first if self.first_seq is None else min(self.first_seq, first)


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is known of the month beside its rows."""

    complete_until: datetime | None
    unknown_requests: int
    unpriced_buckets: int


def render(
    export: BillingExport, invoices: list[str], files: list[Written], sums: Sums, known: Completeness
) -> bytes:
    """The document's bytes."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "id": export.id,
                "schema": SCHEMA,
                "focus_version": FOCUS_VERSION,
                "focus_columns": len(FOCUS_COLUMNS),
                "columns": list(COLUMNS),
                "tenant": None if export.tenant_id is None else str(export.tenant_id),
                "period": _period(export),
                "invoices": invoices,
                "rows": sums.rows,
                "requests": sums.requests,
                "billed": {currency: amount_text(units) for currency, units in sorted(sums.units.items())},
                "tokens": dict(sorted(sums.tokens.items())),
                "price_book_versions": sorted(sums.versions),
                "sequence": {"first": sums.first_seq, "through": export.through_seq},
                "complete_until": _moment(known.complete_until),
                "unknown_requests": known.unknown_requests,
                "unpriced_buckets": known.unpriced_buckets,
                "files": [
                    {"name": each.name, "bytes": each.num_bytes, "sha256": each.sha256, "rows": sums.rows}
                    for each in files
                ],
            }
        ),
        indent=1,
    )


def through_of(manifest: bytes) -> tuple[bool, int]:
    """Whether the month was closed, and the last charge in it: the greater supersedes the smaller."""
    read: dict[str, Any] = msgspec.json.decode(manifest)
    return read["period"]["status"] == "closed", int(read["sequence"]["through"])


def files_of(manifest: bytes) -> dict[str, str]:
    """sha256 by the name of each file."""
    read: dict[str, Any] = msgspec.json.decode(manifest)
    return {str(each["name"]): str(each["sha256"]) for each in read["files"]}


def _period(export: BillingExport) -> dict[str, str]:
    return {
        "month": month_text(export.month),
        "start": f"{start_of(export.month):%Y-%m-%dT%H:%M:%SZ}",
        "end": f"{end_of(export.month):%Y-%m-%dT%H:%M:%SZ}",
        "status": "closed" if export.closed else "open",
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _whole(value: object) -> int:
    return int(str(value))
