"""Files that agree with the ledger to the last unit, the same bytes for the same question."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from adapters.store import ObjectStore, Unavailable, open_store
from gateway.billing.charging.schemas import ReRatingIn
from gateway.billing.exports import repository
from gateway.billing.exports.files import ChargeFiles, csv_text
from gateway.billing.exports.focus import COLUMNS, Kind, Row
from gateway.billing.exports.maker import KEPT_SNAPSHOTS, Maker
from gateway.billing.exports.repository import ExportFilters
from gateway.billing.exports.schemas import File
from gateway.billing.exports.service import DOWNLOADS_TENANT, NAMES
from gateway.billing.money import units_of
from gateway.billing.months import bucket_of
from gateway.errors import Conflict, RateLimited
from gateway.models import BillingExport, BillingPeriod
from gateway.principal import TenantId
from gateway.usage.service import Asked, report
from tests.gateway.billing.conftest import FEBRUARY, JANUARY, NOON, OPERATOR, Bench, prices, usage

NewTenant = Callable[[], Awaitable[TenantId]]
Rows = list[dict[str, str]]


async def made(bench: Bench, tenant: TenantId | None, month: Any = JANUARY) -> BillingExport:
    asked = await bench.exports.ask(OPERATOR, tenant, month)
    await bench.maker.run_once()
    found = await bench.exports.get(tenant, asked.id)
    assert (found.state, found.reason) == ("done", None)
    return found


async def bytes_of(bench: Bench, export: BillingExport, file: File) -> bytes:
    tenant = None if export.tenant_id is None else TenantId(export.tenant_id)
    download = await bench.exports.fetch(tenant, export.id, file)
    return b"".join([chunk async for chunk in download.chunks()])


async def rows_of(bench: Bench, export: BillingExport) -> Rows:
    text = (await bytes_of(bench, export, "csv")).decode()
    return list(csv.DictReader(io.StringIO(text)))


def sums(rows: Rows) -> dict[tuple[str, str, str, str], tuple[Decimal, Decimal]]:
    """(tokens, cost) by tenant, key, adapter version and meter."""
    found: dict[tuple[str, str, str, str], list[Decimal]] = {}
    for row in rows:
        key = (row["SubAccountId"], row["x_ApiKeyId"], row["ResourceId"], row["SkuMeter"])
        entry = found.setdefault(key, [Decimal(0), Decimal(0)])
        entry[0] += Decimal(row["ConsumedQuantity"] or 0)
        entry[1] += Decimal(row["BilledCost"])
    return {key: (entry[0], entry[1]) for key, entry in found.items()}


async def mixed(bench: Bench, *tenants: TenantId) -> None:
    await bench.set_prices([*prices("0.15"), *prices("0.2", service_class="batch")])
    for tenant in tenants:
        await bench.add(
            *(
                usage(
                    tenant,
                    NOON + timedelta(minutes=11 * n),
                    key_id=f"k{n % 3}",
                    adapter_name="pirate" if n % 2 else None,
                    adapter_version=n % 5 or None if n % 2 else None,
                    owner_id=tenant if n % 2 else None,
                    service_class="batch" if n % 7 == 0 else "standard",
                    source="cache" if n % 11 == 0 else "engine",
                    billed_prompt_tokens=100 + n,
                )
                for n in range(60)
            )
        )
    await bench.charging.run_once()


async def test_csv_parquet_manifest_api_and_ledger_agree_exactly(bench: Bench, new_tenant: NewTenant) -> None:
    tenants = [await new_tenant(), await new_tenant()]
    await mixed(bench, *tenants)
    whole = await made(bench, None)
    rows = await rows_of(bench, whole)
    table = pyarrow.parquet.read_table(io.BytesIO(await bytes_of(bench, whole, "parquet"))).to_pylist()
    assert [row["x_RowId"] for row in table] == [row["x_RowId"] for row in rows]
    assert [row["BilledCost"] for row in table] == [Decimal(row["BilledCost"]) for row in rows]
    assert [row["ConsumedQuantity"] for row in table] == [Decimal(row["ConsumedQuantity"]) for row in rows]
    assert len({row["x_RowId"] for row in rows}) == len(rows)
    manifest = json.loads(await bytes_of(bench, whole, "manifest"))
    assert manifest["billed"] == {"USD": f"{sum(Decimal(row['BilledCost']) for row in rows):f}".rstrip("0")}
    assert manifest["rows"] == len(rows)
    total = Counter[str]()
    for tenant in tenants:
        own = [row for row in rows if row["SubAccountId"] == str(tenant)]
        assert sums(await rows_of(bench, await made(bench, tenant))) == sums(own)
        shown = await report(bench.db, tenant, Asked(JANUARY, JANUARY.replace(day=31)))
        statement = await bench.statements.statement(tenant, JANUARY)
        cost = sum(units_of(row["BilledCost"]) for row in own)
        assert shown.amount is not None
        assert cost == units_of(shown.amount) == units_of(statement.exact)
        assert cost == (await bench.charged(tenant))[3]
        tokens = sum(int(row["ConsumedQuantity"]) for row in own)
        assert tokens == sum(await bench.ledger(tenant)) == shown.prompt_tokens + shown.completion_tokens
        assert sum(int(row["x_RequestCount"]) for row in own) == shown.requests == 60
        total.update({"tokens": tokens})
    assert sum(manifest["tokens"].values()) == total["tokens"]
    assert manifest["requests"] == 120


async def test_a_month_that_closes_while_it_is_asked_for_is_no_closed_export_without_its_end(
    bench: Bench, tenant: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is charged and closed between two looks would lack in a file that says it is final."""
    await mixed(bench, tenant)
    look = repository.through_seq

    async def then_it_closes(session: Any, who: Any, month: Any) -> int:
        through = await look(session, who, month)
        async with bench.db.system_session() as other:
            other.add(BillingPeriod(month=month, complete_until=NOON, through_seq=through + 1))
        return through

    monkeypatch.setattr(repository, "through_seq", then_it_closes)
    assert not (await bench.exports.ask(OPERATOR, tenant, JANUARY)).closed


async def test_the_same_question_has_the_same_bytes(bench: Bench, tenant: TenantId, tmp_path: Path) -> None:
    await mixed(bench, tenant)
    first = await made(bench, tenant)
    kept = {file: await bytes_of(bench, first, file) for file in NAMES}
    assert (await bench.exports.ask(OPERATOR, tenant, JANUARY)).id == first.id
    other = open_store(f"file://{tmp_path / 'elsewhere'}")  # another leader, that begins with nothing
    maker = Maker(bench.db, other, tmp_path / "work", "Operator Ltd")
    await bench.complete_until(NOON + timedelta(days=3))
    await maker._make(first)
    for file, name in NAMES.items():
        target = tmp_path / name
        other.fetch_file(f"tenants/{tenant}/exports/2026-01/{first.id}/{name}", target)
        assert target.read_bytes() == kept[file], file
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    assert (await bench.exports.ask(OPERATOR, tenant, JANUARY)).id != first.id


async def test_a_closed_month_is_never_written_again(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("100"))
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    snapshot = await made(bench, tenant)
    await bench.close("2026-01")
    final = await made(bench, tenant)
    assert (snapshot.closed, final.closed) == (False, True)
    kept = {file: await bytes_of(bench, final, file) for file in NAMES}
    rows = await rows_of(bench, final)
    statement = await bench.statements.statement(tenant, JANUARY)
    assert {row["InvoiceId"] for row in rows} == {statement.id}
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(statement.total)
    (rounding,) = [row for row in rows if row["ChargeCategory"] == "Adjustment"]
    assert Decimal(rounding["BilledCost"]) == Decimal(statement.rounding)
    assert not {row["InvoiceId"] for row in await rows_of(bench, snapshot)} - {""}

    await bench.add(usage(tenant, NOON + timedelta(minutes=1)))
    await bench.charging.run_once()
    assert (await made(bench, tenant)).id == final.id
    assert {file: await bytes_of(bench, final, file) for file in NAMES} == kept
    corrections = await rows_of(bench, await made(bench, tenant, FEBRUARY))
    assert {row["ChargeClass"] for row in corrections} == {"Correction"}
    assert {row["ChargePeriodStart"] for row in corrections} == {"2026-01-15T12:00:00Z"}
    assert {row["BillingPeriodStart"] for row in corrections} == {"2026-02-01T00:00:00Z"}
    assert {row["InvoiceId"] for row in corrections} == {""}
    known = {row["x_RowId"] for row in rows}
    assert {row["x_CorrectsRowId"] for row in corrections} <= known
    assert not {row["x_RowId"] for row in corrections} & known


async def test_a_rerated_row_is_reversed_by_a_row_that_can_be_read(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.close("2026-01")
    cheaper = await bench.set_prices(prices("0.5"))
    start = bucket_of(NOON)
    wanted = ReRatingIn(start=start, end=start + timedelta(minutes=15), dry_run=False)
    await bench.reratings.rerate(OPERATOR, cheaper, wanted)
    rows = await rows_of(bench, await made(bench, tenant, FEBRUARY))
    output = {row["ListUnitPrice"]: row["BilledCost"] for row in rows if row["SkuMeter"] == "Output Tokens"}
    assert output == {"2.000000": "-0.00002", "1.000000": "0.00001"}
    assert {row["ChargeClass"] for row in rows} == {"Correction"}


async def test_all_tenants_are_exported_when_a_month_closes(bench: Bench, tenant: TenantId) -> None:
    await mixed(bench, tenant)
    await bench.close("2026-01")
    assert await bench.maker.run_once() == 1
    assert await bench.maker.run_once() == 0
    (export,) = await bench.exports.page(None, ExportFilters(), None, 10)
    assert (export.closed, export.state, export.requested_by) == (True, "done", "system")


class FailingStore:
    """Refuses its n-th put, and each after it."""

    def __init__(self, store: ObjectStore, puts: int) -> None:
        self._store = store
        self._left = puts

    def put_file(self, source: Path, path: str) -> None:
        if self._left == 0:
            raise Unavailable("killed here")
        self._left -= 1
        self._store.put_file(source, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("puts", range(4))
async def test_a_reader_of_the_store_sees_the_old_export_or_the_new(
    bench: Bench, tenant: TenantId, tmp_path: Path, puts: int
) -> None:
    await mixed(bench, tenant)
    old = await made(bench, tenant)
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    new = await bench.exports.ask(OPERATOR, tenant, JANUARY)
    failing: Any = FailingStore(bench.store, puts)
    with pytest.raises(Unavailable):
        await Maker(bench.db, failing, tmp_path / "work", "Operator Ltd").run_once()
    assert await current(bench, tenant, tmp_path) == old.id
    with pytest.raises(Conflict):
        await bench.exports.fetch(tenant, new.id, "csv")
    assert await bench.maker.run_once() == 1
    assert await current(bench, tenant, tmp_path) == new.id


async def current(bench: Bench, tenant: TenantId, folder: Path) -> str:
    """What the month's manifest names; each of its files is there, and is what it says."""
    place = f"tenants/{tenant}/exports/2026-01"
    bench.store.fetch_file(f"{place}/manifest.json", folder / "seen.json")
    manifest = json.loads((folder / "seen.json").read_bytes())
    for each in manifest["files"]:
        assert bench.store.size(f"{place}/{manifest['id']}/{each['name']}") == each["bytes"]
    return str(manifest["id"])


async def test_old_snapshots_of_an_open_month_are_removed(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    exports = []
    for n in range(KEPT_SNAPSHOTS + 3):
        await bench.add(usage(tenant, NOON + timedelta(hours=n)))
        await bench.charging.run_once()
        exports.append(await made(bench, tenant))
    states = [(await bench.exports.get(tenant, each.id)).state for each in exports]
    assert states == ["superseded"] * 3 + ["done"] * KEPT_SNAPSHOTS
    files = list(bench.store.list(f"tenants/{tenant}/exports"))
    assert len(files) == 3 * KEPT_SNAPSHOTS + 1
    first = exports[0]
    assert (await bench.exports.ask(OPERATOR, tenant, JANUARY)).id == exports[-1].id
    with pytest.raises(Conflict):
        await bench.exports.fetch(tenant, first.id, "csv")


async def test_a_tenant_has_few_downloads_on_the_disk_at_a_time(
    bench: Bench, tenant: TenantId, new_tenant: NewTenant
) -> None:
    other = await new_tenant()
    await mixed(bench, tenant, other)
    mine, theirs = await made(bench, tenant), await made(bench, other)
    held = [await bench.exports.fetch(tenant, mine.id, "csv") for _ in range(DOWNLOADS_TENANT)]
    with pytest.raises(RateLimited):
        await bench.exports.fetch(tenant, mine.id, "manifest")
    assert await rows_of(bench, theirs)
    unread = held.pop().chunks()  # an answer whose client left before it began
    with pytest.raises(RateLimited):
        await bench.exports.fetch(tenant, mine.id, "manifest")
    del unread
    assert await bytes_of(bench, mine, "manifest")
    with pytest.raises(Conflict):
        await bench.exports.fetch(tenant, (await bench.exports.ask(OPERATOR, tenant, FEBRUARY)).id, "csv")
    read = held.pop()
    assert b"".join([chunk async for chunk in read.chunks()])  # and somebody still holds what is over
    again = [await bench.exports.fetch(tenant, mine.id, "csv") for _ in range(DOWNLOADS_TENANT)]
    assert len(again) == DOWNLOADS_TENANT


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1.5", "@SUM(A1)", "\tx", "\rx"])
def test_a_text_can_not_be_a_formula_and_a_number_stays_one(text: str) -> None:
    assert csv_text(text, Kind.TEXT) == f"'{text}"
    assert csv_text(text, Kind.DECIMAL) == text


def test_row_groups_do_not_depend_on_how_rows_came(tmp_path: Path) -> None:
    rows: list[Row] = [
        {**dict.fromkeys(COLUMNS), "x_RequestCount": n, "BilledCost": f"-0.{n}"} for n in range(1, 12_001)
    ]
    digests = set()
    for size in (777, 30_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        with ChargeFiles(folder) as files:
            for start in range(0, len(rows), size):
                files.add(rows[start : start + size])
            digests.add(tuple(each.sha256 for each in files.finish()))
    assert len(digests) == 1
    table = pyarrow.parquet.read_table(tmp_path / "777" / "charges.parquet")
    assert table.num_rows == len(rows)
    assert table["BilledCost"][0].as_py() == Decimal("-0.1")
