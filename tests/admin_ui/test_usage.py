"""What was used and what it costs, as people read it: the same figures on the pages, in the files, and in the
ledger."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pyarrow.parquet
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from gateway.cli import app
from gateway.db import Database
from gateway.principal import TenantId
from gateway.usage.event import UsageEvent
from gateway.usage.repository import insert_events
from gateway.usage.zones import zone_of
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import settled, too_wide, violations
from tests.gateway.billing.conftest import usage
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]
PRICE = {"cached_input": "0.5", "output": "2", "answer_input": "0", "answer_output": "0"}
TINY = dict.fromkeys(("input", "cached_input", "output"), "0.000001")
DEAR = dict.fromkeys(("input", "cached_input", "output"), "10438.34")
FIRST, LAST = date(2026, 3, 26), date(2026, 4, 1)  # Vienna's clocks change on the 29th
MARCH = "2026-03"


@pytest.fixture(scope="module")
def prices(admin: httpx.Client) -> None:
    """Of classes that differ by far, from 2025 on."""
    rows = [
        {"model": kind, "service_class": name, **PRICE, **row}
        for kind in ("base", "any_adapter")
        for name, row in ((None, {"input": "1"}), ("batch", TINY), ("interactive", DEAR))
    ]
    book = {"effective_from": "2025-01-01T00:00:00Z", "retroactive": True, "note": "first", "prices": rows}
    admin.post("/api/v1/price-books", json=book).raise_for_status()


def used(stack: Rig, admin: httpx.Client, tenant: str, events: Sequence[UsageEvent]) -> None:
    """Into the ledger, as its drain does; then until control has summed and charged it."""

    async def add() -> None:
        db = Database(stack.database.system, stack.database.system)
        async with db.system_session() as session:
            await insert_events(session, events)
        await db.close()

    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop of its own in this one
        thread.submit(lambda: asyncio.run(add())).result()
        counted = "SELECT count(*) FROM usage_arrivals WHERE tenant_id = :tenant"
        for _ in range(600):
            waiting = thread.submit(lambda: asyncio.run(stack.sql(counted, tenant=UUID(tenant)))).result()
            if waiting[0][0] == 0:
                return
            thread.submit(asyncio.run, asyncio.sleep(0.1)).result()
    pytest.fail("control did not charge it")


def spread(tenant: str, **more: Any) -> list[UsageEvent]:
    """From a day before the window to a day after it, by two keys, the base and an adapter."""
    start = datetime(2026, 3, 25, tzinfo=UTC)
    owner = {"adapter_name": "pirate", "adapter_version": 1, "owner_id": UUID(tenant)}
    return [
        usage(
            TenantId(UUID(tenant)),
            start + timedelta(hours=n, minutes=7 * n % 60),
            key_id=f"key-{n % 2}",
            billed_prompt_tokens=100 + n,
            **(owner if n % 3 else {}),
            **more,
        )
        for n in range(24 * 9)
    ]


def cells(page: Page, table: str, row: str) -> list[str]:
    found = page.get_by_role("table", name=table).get_by_role("row").filter(has_text=row).last
    return [cell.replace(",", "") for cell in found.get_by_role("cell").all_inner_texts()]


def test_usage_of_a_zones_days_is_the_ledgers_however_it_is_summed(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker, prices: None
) -> None:
    made = new_tenant(reporting_zone="Asia/Kathmandu")
    events = spread(made["id"])
    used(stack, admin, made["id"], events)
    page = ui.log_in(f"/tenants/{made['id']}/usage?first={FIRST}&last={LAST}")
    for zone in ("Asia/Kathmandu", "Europe/Vienna"):
        mine = [each for each in events if FIRST <= each.ended_at.astimezone(zone_of(zone)).date() <= LAST]
        total = [
            str(len(mine)),
            *(
                str(sum(getattr(each, f"billed_{kind}_tokens") for each in mine))
                for kind in ("prompt", "cached", "completion")
            ),
        ]
        by_day = page.get_by_role("table", name=f"Usage by day of {zone}")
        expect(by_day).to_be_visible()
        for table in (f"Usage by day of {zone}", "Usage by adapter"):
            assert cells(page, table, "Total")[:4] == total
        of_days = [cells(page, f"Usage by day of {zone}", f"{day:%b} {day.day}, 2026") for day in days()]
        for place, whole in enumerate(total, start=1):
            assert sum(int(row[place]) for row in of_days) == int(whole)
        expect(page.get_by_label("Total", exact=True)).to_contain_text(zone)
        expect(page.get_by_label("Total", exact=True)).to_contain_text("complete")
        page.get_by_role("radiogroup", name="Sum by").get_by_text("Key").click()
        expect(page.get_by_role("table", name="Usage by key")).to_be_visible()
        assert cells(page, "Usage by key", "Total")[:4] == total
        page.get_by_role("radiogroup", name="Sum by").get_by_text("Adapter").click()
        page.get_by_role("combobox", name="Days of").fill("Vienna")
        page.get_by_role("option", name="Europe/Vienna").click()
    assert "zone=Europe%2FVienna" in page.url
    expect(by_day.get_by_role("row").filter(has_text="Mar 29, 2026")).to_contain_text("23 hours")
    page.get_by_role("button", name=f"Make it {made['name']}'s zone…").click()
    page.get_by_role("dialog").get_by_role("button", name="Make it so").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("combobox", name="Days of")).to_have_value("Europe/Vienna")
    assert admin.get(f"/api/v1/tenants/{made['id']}").json()["reporting_zone"] == "Europe/Vienna"
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert too_wide(page) == []


def days() -> list[date]:
    return [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)]


def test_money_is_rounded_once_and_what_is_unknown_is_no_zero(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker, prices: None
) -> None:
    made = new_tenant()
    tenant, noon = TenantId(UUID(made["id"])), datetime(2026, 3, 28, 12, tzinfo=UTC)
    classes = ("standard", "batch", "interactive")
    before = usage(tenant, datetime(2024, 12, 30, 12, tzinfo=UTC))
    used(stack, admin, made["id"], [before, *(usage(tenant, noon, service_class=name) for name in classes)])
    page = ui.log_in(f"/tenants/{made['id']}/usage?by=service_class&first={FIRST}&last={LAST}&zone=UTC")
    table = page.get_by_role("table", name="Usage by service class")
    for name, rounded, exact in (
        ("standard", "$0.000100", "0.0001 USD"),  # 60 at 1, 40 at 0.5 and 10 at 2, of a million
        ("batch", "< $0.000001", "0.00000000011 USD"),
        ("interactive", "$1.15", "1.1482174 USD"),
    ):
        money = table.get_by_role("row").filter(has_text=name).get_by_title(exact.replace(" ", "\u00a0"))
        expect(money).to_have_text(rounded)
    empty = page.get_by_role("table", name="Usage by day").get_by_role("row").filter(has_text="Mar 27, 2026")
    expect(empty.get_by_title("0\u00a0USD")).to_be_visible()
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/usage?first=2024-12-29&last=2024-12-31")
    total = page.get_by_label("Total", exact=True)
    expect(total).to_contain_text("no price")
    expect(page.get_by_role("status").filter(has_text="110 tokens have no price")).to_be_visible()
    today = datetime.now(UTC).date()
    ahead = f"first={today}&last={today + timedelta(days=1)}&zone=UTC"
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/usage?{ahead}")
    expect(page.get_by_text("Nothing was used in these days")).to_be_visible()


def test_an_export_is_made_opened_and_summed(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker, prices: None
) -> None:
    made = new_tenant()
    events = spread(made["id"])
    used(stack, admin, made["id"], events)
    page = ui.log_in(f"/tenants/{made['id']}/billing?month={MARCH}")
    lines = page.get_by_role("table", name=f"Lines of {MARCH}")
    expect(lines).to_be_visible()
    shown = lines.get_by_role("row").all()
    amounts = [Decimal(row.get_by_role("cell").last.inner_text()) for row in shown[1:-3]]
    exact = Decimal(lines.get_by_role("row").filter(has_text="Sum, exact").get_by_role("cell").inner_text())
    assert sum(amounts) == exact
    page.get_by_role("button", name="Create export").click()
    row = page.get_by_role("row").filter(has_text="Manifest")
    expect(row.get_by_text("done", exact=True)).to_be_visible()
    files = {}
    for name in ("CSV", "Parquet"):
        with page.expect_download() as download:
            row.get_by_role("link", name=name).click()
        files[name] = Path(download.value.path()).read_bytes()
    rows = list(csv.DictReader(io.StringIO(files["CSV"].decode())))
    table = pyarrow.parquet.read_table(io.BytesIO(files["Parquet"])).to_pylist()
    assert sum(Decimal(each["BilledCost"]) for each in rows) == exact
    assert sum(each["BilledCost"] for each in table) == exact
    march = [each for each in events if f"{each.ended_at:%Y-%m}" == MARCH]
    tokens = sum(each.billed_prompt_tokens + each.billed_completion_tokens for each in march)
    assert sum(int(each["ConsumedQuantity"]) for each in rows) == tokens
    assert sum(each["ConsumedQuantity"] for each in table) == tokens
    assert sum(int(each["x_RequestCount"]) for each in rows) == len(march)
    row.get_by_role("button", name="Checksums…").click()
    expect(page.get_by_role("dialog").get_by_role("row")).to_have_count(3)
    page.keyboard.press("Escape")
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/usage?first=2026-03-01&last=2026-03-31&zone=UTC")
    cost = page.get_by_label("Total", exact=True).get_by_title(f"{exact.normalize():f}\u00a0USD")
    expect(cost).to_be_visible()

    page.goto(f"{ui.base_url}/admin/billing")
    page.get_by_role("link", name=MARCH).click()
    page.get_by_label("Count the ledger's rows anew").check()
    mine = page.get_by_role("row").filter(has_text=made["name"])
    expect(mine.get_by_text("agrees")).to_be_visible()
    expect(mine.get_by_text(f"{tokens:,}", exact=True)).to_have_count(3)  # used, charged, in the ledger
    settled(page)
    assert violations(page) == []
    said = motet(
        stack, "usage", "by", "key", "--tenant", made["name"], "--first", "2026-03-01", "--last", "2026-03-31"
    )
    assert Decimal(said["total"]["amount"]) == exact
    (one,) = [
        each
        for each in motet(stack, "billing", "reconcile", "--month", MARCH)
        if each["name"] == made["name"]
    ]
    assert (one["agrees"], one["ledger"], Decimal(one["exact"])) == (True, one["charged"], exact)
    assert MARCH in {each["month"] for each in motet(stack, "billing", "periods", "--all")}


def motet(stack: Rig, *words: str) -> Any:
    """What the command says: all that these pages do, it does."""
    env = {"MOTET_URL": stack.base_url, "MOTET_ADMIN_TOKEN": stack.token}
    done = CliRunner().invoke(app, [*words, "--json"], env=env)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_each_role_sees_its_own_and_no_more(ui: Ui, tenant: str) -> None:
    page = ui.log_in_at_provider("money", f"/tenants/{tenant}/billing")
    expect(page.get_by_role("button", name="Create export")).to_be_visible()
    assert page.get_by_role("tab").all_inner_texts() == ["Overview", "Usage", "Billing"]
    assert page.get_by_label("Main").get_by_role("link").all_inner_texts() == ["Tenants", "Settings"]
    page.context.clear_cookies()
    page.close()
    page = ui.log_in_at_provider("dev", f"/tenants/{tenant}/usage")
    expect(page.get_by_role("combobox", name="Days of")).to_be_visible()
    expect(page.get_by_role("tab", name="Usage")).to_be_visible()
    expect(page.get_by_role("tab", name="Billing")).to_have_count(0)
    for place in (f"/tenants/{tenant}/billing", "/billing"):
        refused = ui.open(place, expected={403})
        expect(refused.get_by_role("alert").first).to_be_visible()
        expect(refused.get_by_role("table")).to_have_count(0)
        refused.close()


def test_a_version_of_the_price_book_is_previewed_made_and_seen(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker, prices: None
) -> None:
    made = new_tenant()
    recent = datetime.now(UTC) - timedelta(days=2)
    used(stack, admin, made["id"], [usage(TenantId(UUID(made["id"])), recent)])
    page = ui.log_in("/billing/prices/new", expected={400})
    price = page.get_by_label("Input, row 1", exact=True)
    price.fill("much")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.get_by_role("alert")).to_be_visible()
    price.fill("3")
    page.get_by_label("Note").fill("dearer")
    page.get_by_role("button", name="Show what changes").click()
    changes = page.get_by_label("What changes", exact=True)
    expect(changes.get_by_role("row", name="The base itself any Input 1.000000 3")).to_be_visible()
    mine = changes.get_by_role("row").filter(has_text=made["name"])
    expect(mine.get_by_title("0.00012\u00a0USD")).to_be_visible()  # 60 of 110 tokens at two more of a million
    assert violations(page) == []
    page.get_by_role("button", name="Create version").click()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("cell", name="3.000000")).to_be_visible()
    page.get_by_role("link", name="All versions").click()
    row = page.get_by_role("row").filter(has_text="dearer")
    expect(row.get_by_text("planned")).to_be_visible()
    expect(page.get_by_text("No row is more particular")).to_be_visible()  # the choice in force now
    row.get_by_role("link").click()
    page.get_by_label("Tenant (id), or all").fill(made["id"])
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_role("button", name="Rate anew…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type version").fill(page.get_by_role("heading", level=2).first.inner_text().lower())
    dialog.get_by_role("button", name="Rate anew").click()
    expect(page.get_by_role("status").filter(has_text="charges were added")).to_be_visible()
    usage_of = admin.get(f"/api/v1/tenants/{made['id']}/usage").json()
    assert usage_of["amount"] == "0.00022"
