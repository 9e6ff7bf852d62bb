"""`motet usage verify`: receipts and an export, checked with nothing but the tenant's key."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from deploy.cli import build_app
from gateway.answers.sealing import DataKeys
from gateway.billing.exports.files import MANIFEST, ChargeFiles
from gateway.billing.exports.focus import ChargeGroup, Frame, Residue, residue_row, rows_of
from gateway.billing.exports.manifest import Completeness, Sums, render
from gateway.billing.months import parse_month
from gateway.ids import uuid7
from gateway.models import BillingExport
from gateway.principal import TenantId
from gateway.receipts.keys import ReceiptKeys
from gateway.receipts.verification import read_keys, verify
from gateway.usage.event import UsageEvent
from tests.gateway.usage.test_journal import make_event

KEYS = ReceiptKeys(DataKeys(SecretStr("receipt-key-" * 4)))
TENANT = TenantId(uuid4())
ADAPTER = "a" * 64
MONTH = parse_month("2026-01")
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


def used(minute: int = 0, **more: Any) -> UsageEvent:
    """Of an adapter: 10 prompt tokens, 4 of them cached, and 5 generated."""
    fields: dict[str, Any] = {
        "tenant_id": TENANT,
        "artefact": ADAPTER,
        "ended_at": NOON.replace(minute=minute),
        "billed_prompt_tokens": 10,
        "billed_cached_tokens": 4,
        "billed_completion_tokens": 5,
    }
    return make_event(**(fields | more))


def keys_text(tenant: UUID = TENANT) -> str:
    held = KEYS.of(TenantId(tenant))
    return json.dumps({"data": [{"id": key.id, "key": key.text, "current": True} for key in held]})


def group(requests: int, tokens: tuple[int, int, int], **more: Any) -> ChargeGroup:
    fields: dict[str, Any] = {
        "hour": NOON, "tenant_id": TENANT, "tenant_name": "acme", "key_id": "k1", "base_id": "base",
        "base_name": "base", "owner_id": TENANT, "owner_name": "acme", "adapter_name": "pirate",
        "adapter_version": 3, "artefact": ADAPTER, "service_class": "standard", "source": "engine",
        "version": 1, "price_id": uuid7(), "currency": "USD", "prices": (200_000, 100_000, 300_000),
        "tokens": tokens, "requests": requests, "first_seq": 1, "last_seq": 2, "rated_at": NOON,
    }  # fmt: skip
    return ChargeGroup(**(fields | more))


def export(folder: Path, *groups: ChargeGroup, tenant: UUID | None = TENANT) -> Path:
    """As control's maker writes one."""
    folder.mkdir()
    frame, sums = Frame(MONTH, "Motet", {}), Sums()
    rows = [row for each in groups for row in rows_of(each, frame)]
    rows.append(residue_row(Residue(TENANT, "acme", "USD", -7), frame))
    with ChargeFiles(folder) as files:
        for row in rows:
            sums.add(row)
        files.add(rows)
        done = files.finish()
    asked = BillingExport(
        id="e" * 64, tenant_id=tenant, month=MONTH, through_seq=2, closed=True, state="done"
    )
    (folder / MANIFEST).write_bytes(render(asked, [], done, sums, Completeness(NOON, 0, 0)))
    return folder


def run(tmp_path: Path, lines: list[str], *more: str, keys: str | None = None) -> tuple[int, Any, str]:
    (tmp_path / "keys.json").write_text(keys_text() if keys is None else keys)
    arguments = ["usage", "verify", "-", "--keys", str(tmp_path / "keys.json"), "--json", *more]
    result = CliRunner().invoke(build_app(arguments), arguments, input="\n".join(lines))
    told = json.loads(result.stdout) if result.stdout.startswith("{") else None
    return result.exit_code, told, result.stderr


def test_receipts_hold_as_they_come(tmp_path: Path) -> None:
    first, second, third = (KEYS.sign(used(minute)) for minute in range(3))
    lines = [first, "", f": motet-receipt {second}", json.dumps({"status": "final", "receipt": third}), first]
    code, told, _ = run(tmp_path, lines)
    assert (code, told["receipts"], told["repeated"], told["faults"]) == (0, 3, 1, [])
    assert (told["input_tokens"], told["cached_tokens"], told["output_tokens"]) == (30, 12, 15)


def test_what_does_not_hold_is_named_by_its_line(tmp_path: Path) -> None:
    good = KEYS.sign(used())
    other = KEYS.sign(used(tenant_id=uuid4()))
    event = used(1)
    lines = [
        good,
        good.replace("output=5", "output=4"),
        other,
        "{}",
        "{nonsense",
        "v=1",
        KEYS.sign(event),
        KEYS.sign(used(1, request_id=event.request_id, billed_completion_tokens=6)),
    ]
    code, told, _ = run(tmp_path, lines)
    assert (code, told["receipts"]) == (1, 2)
    reasons = {each["place"]: each["reason"] for each in told["faults"]}
    assert reasons["line 2"] == "it was changed"
    assert "not among those given" in reasons["line 3"]
    assert set(reasons) == {f"line {number}" for number in (2, 3, 4, 5, 6, 8)}
    assert "differs" in reasons["line 8"]


def test_keys_may_be_bare_lines_and_nothing_else() -> None:
    (key,) = KEYS.of(TENANT)
    assert verify([KEYS.sign(used())], read_keys(f"{key.text}\n")).faults == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"data": []}', '{"data": [{}]}', "c2hvcnQ", "!!!"])
def test_what_is_no_key_is_said(tmp_path: Path, text: str) -> None:
    code, told, why = run(tmp_path, [], keys=text)
    assert (code, told) == (1, None)
    assert "can't be used" in why


def test_an_export_holds_what_receipts_tell(tmp_path: Path) -> None:
    cached = used(20, source="cache", billed_cached_tokens=0)
    lines = [KEYS.sign(event) for event in (used(), used(59), used(5, artefact=None), cached)]
    folder = export(
        tmp_path / "export",
        group(2, (12, 8, 10)),
        group(1, (6, 4, 5), artefact=None, adapter_name=None, owner_id=None),
        group(1, (10, 0, 5), source="cache"),
    )
    code, told, _ = run(tmp_path, lines, "--export", str(folder), "--whole")
    assert (code, told["faults"], told["receipts"]) == (0, [], 4)
    code, told, _ = run(tmp_path, lines[:1], "--export", str(folder))  # some receipts are enough
    assert (code, told["faults"]) == (0, [])
    code, told, _ = run(tmp_path, lines[:1], "--export", str(folder), "--whole")
    assert (code, "without a receipt" in str(told["faults"])) == (1, True)


def test_rows_that_lack_what_a_receipt_tells_are_named(tmp_path: Path) -> None:
    folder = export(tmp_path / "export", group(1, (6, 4, 5)))
    lines = [KEYS.sign(used()), KEYS.sign(used(1))]
    code, told, _ = run(tmp_path, lines, "--export", str(folder))
    assert code == 1
    assert "Output Tokens" in str(told["faults"])
    assert "5 tokens more than the rows" in str(told["faults"])
    elsewhere = [lines[0], KEYS.sign(used(ended_at=datetime(2026, 2, 1, tzinfo=UTC)))]
    assert run(tmp_path, elsewhere, "--export", str(folder))[0] == 0  # another month's export has that one


def test_files_that_were_changed_are_found(tmp_path: Path) -> None:
    folder = export(tmp_path / "export", group(1, (6, 4, 5)))
    told_of = json.loads((folder / MANIFEST).read_text())
    for wrong, places in (
        ({"rows": 9, "billed": {"USD": "1"}}, {"rows", "billed"}),
        ({"files": []}, {MANIFEST}),
    ):
        (folder / MANIFEST).write_text(json.dumps(told_of | wrong))
        code, told, _ = run(tmp_path, [], "--export", str(folder))
        assert (code, {each["place"] for each in told["faults"]}) == (1, places)
    (folder / MANIFEST).write_text(json.dumps(told_of))
    (folder / "charges.csv").write_text((folder / "charges.csv").read_text().replace("pirate", "parrot"))
    (folder / "charges.parquet").unlink()
    code, told, _ = run(tmp_path, [], "--export", str(folder))
    assert (code, [each["place"] for each in told["faults"]]) == (1, ["charges.csv", "charges.parquet"])
    (folder / MANIFEST).write_text("{}")
    code, told, why = run(tmp_path, [], "--export", str(folder))
    assert (code, told, "no manifest" in why) == (1, None, True)


def test_json_as_the_commands_print_it_is_read() -> None:
    receipts = [KEYS.sign(used(minute)) for minute in range(3)]
    printed = [json.dumps({"request_id": "x", "receipt": each}, indent=2) for each in receipts]
    text = "\n".join([printed[0], receipts[1], printed[2], "{", '  "receipt": 1'])
    done = verify(text.splitlines(keepends=True), read_keys(keys_text()))
    assert len(done.receipts) == len(receipts)
    assert [fault.reason for fault in done.faults] == ["it is neither JSON nor a receipt"]
    assert done.faults[0].place == "line 10"
