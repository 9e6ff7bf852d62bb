"""Checks an export that lies in a folder: its files against its manifest, its rows against its sums, and
receipts against its rows.

A row is the charges of an hour, a key, a model and a price; a receipt is one request. So what can be shown
of receipts is that the rows hold at least as much: for each tenant, hour, model and source, and each meter.
Who has a receipt of every request of a complete month can ask for equality (`whole`).
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gateway.billing.exports.files import CSV, MANIFEST
from gateway.billing.meters import metered
from gateway.billing.money import amount_text, units_of
from gateway.receipts.receipt import Receipt
from gateway.receipts.verification import CanNotRead, Fault

NO_PRICES: Final = (0, 0, 0)

Group = tuple[str, str, str, str, str]
"""Tenant, hour (UTC), adapter's digest or empty for the base, source, meter."""


@dataclass(frozen=True, slots=True)
class Export:
    """A manifest, and the rows of the CSV beside it."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Export:
        """Raises `CanNotRead`."""
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            assert isinstance(manifest["files"], list)
            assert isinstance(manifest["period"]["start"], str)
        except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
            raise CanNotRead(f"{folder / MANIFEST} is no manifest of an export") from error
        return cls(folder, manifest)

    def rows(self) -> Iterator[dict[str, str]]:
        with (self.folder / CSV).open(encoding="utf-8", newline="") as opened:
            yield from csv.DictReader(opened)

    def faults(self, receipts: Iterable[Receipt], *, whole: bool) -> list[Fault]:
        """Everything that does not hold. Files that are not what the manifest says are not looked into."""
        told: list[dict[str, Any]] = self.manifest["files"]
        wrong = [fault for each in told if (fault := self._file_fault(each)) is not None]
        if CSV not in {each["name"] for each in told}:
            wrong.append(Fault(MANIFEST, f"it does not name {CSV}"))
        if wrong:
            return wrong
        try:
            return [*self._sum_faults(), *self._receipt_faults(receipts, whole)]
        except (KeyError, ValueError) as error:
            raise CanNotRead(f"{self.folder / CSV} can't be read: {error}") from error

    def _file_fault(self, told: dict[str, Any]) -> Fault | None:
        name = Path(str(told["name"])).name
        try:
            with (self.folder / name).open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError:
            return Fault(name, "it is not there")
        return None if digest == told["sha256"] else Fault(name, "it is not the file of the manifest")

    def _sum_faults(self) -> Iterator[Fault]:
        rows, requests = 0, 0
        billed: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for row in self.rows():
            rows += 1
            requests += int(row["x_RequestCount"])
            billed[row["BillingCurrency"]] += units_of(row["BilledCost"])
            if row["SkuMeter"]:
                tokens[row["SkuMeter"]] += int(row["ConsumedQuantity"])
        found = {
            "rows": rows,
            "requests": requests,
            "billed": {currency: amount_text(units) for currency, units in billed.items()},
            "tokens": dict(tokens),
        }
        for name, value in found.items():
            if value != self.manifest[name]:
                yield Fault(name, f"the rows come to {value}, the manifest says {self.manifest[name]}")

    def _receipt_faults(self, receipts: Iterable[Receipt], whole: bool) -> Iterator[Fault]:
        wanted = self._told(receipts)
        charged: Counter[Group] = Counter()
        for row in self.rows():
            if row["SkuMeter"]:
                charged[_group_of(row)] += int(row["ConsumedQuantity"])
        for group in sorted(wanted.keys() | (charged.keys() if whole else set())):
            missing = wanted[group] - charged[group]
            if missing > 0:
                yield Fault(_named(group), f"receipts tell of {missing} tokens more than the rows")
            elif missing < 0 and whole:
                yield Fault(_named(group), f"the rows have {-missing} tokens without a receipt")

    def _told(self, receipts: Iterable[Receipt]) -> Counter[Group]:
        """Billed tokens of receipts that belong to the export: of its tenant, and of its month."""
        start, end = (datetime.fromisoformat(self.manifest["period"][each]) for each in ("start", "end"))
        tenant = self.manifest["tenant"]
        found: Counter[Group] = Counter()
        for receipt in receipts:
            if tenant not in (None, str(receipt.tenant_id)) or not start <= receipt.ended_at < end:
                continue
            plain = receipt.input_tokens - receipt.cached_tokens
            tokens = (plain, receipt.cached_tokens, receipt.output_tokens)
            hour = receipt.ended_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            model = receipt.model if receipt.is_adapter else ""
            for each in metered(receipt.source, tokens, NO_PRICES):
                place = (str(receipt.tenant_id), _text(hour), model, receipt.source, str(each.meter))
                found[place] += each.tokens
        return found


def _group_of(row: dict[str, str]) -> Group:
    return (
        row["BillingAccountId"],
        row["ChargePeriodStart"],
        row["x_AdapterDigest"],
        row["x_Source"],
        row["SkuMeter"],
    )


def _named(group: Group) -> str:
    tenant, hour, model, source, meter = group
    return f"{meter} of {model[:12] or 'the base'} at {hour} ({source}, tenant {tenant})"


def _text(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H:%M:%SZ}"
