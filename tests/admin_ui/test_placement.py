"""Where adapters lie, as operators see it: live, by keyboard, and with what else the fleet's pages do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from gateway.catalog.repository import Line
from gateway.cli import app
from gateway.db import Database
from gateway.principal import TenantId
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import settled, too_wide, violations
from tests.gateway.placement.test_placements import add_adapter
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Adapter:
    tenant: str
    name: str

    @property
    def path(self) -> str:
        return f"/api/v1/tenants/{self.tenant}/adapters/{self.name}/placement"


@pytest.fixture
def adapter(stack: Rig, admin: httpx.Client, new_tenant: Maker) -> Iterator[Adapter]:
    """One that may serve; nothing is to be computed with it here."""
    tenant = new_tenant()["id"]
    admin.put(
        f"/api/v1/tenants/{tenant}/placement-quota", json={"slots": 8, "bytes": 2**30}
    ).raise_for_status()
    made = Adapter(tenant, f"triage-{uuid4().hex[:6]}")

    async def add() -> None:
        db = Database(stack.database.app, stack.database.system)
        await add_adapter(db, Line(TenantId(tenant), stack.base_id), made.name)
        await db.close()

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has this one's event loop
        thread.submit(asyncio.run, add()).result()
    yield made
    admin.delete(made.path)


def row_of(page: Page, adapter: Adapter) -> Any:
    table = page.get_by_role("table", name=re.compile("^Adapters by replica"))
    return table.get_by_role("row").filter(has_text=adapter.name)


def test_a_placement_and_its_move_appear_without_a_reload(
    ui: Ui, admin: httpx.Client, adapter: Adapter
) -> None:
    page = ui.log_in(f"/placement?name={adapter.name}")
    expect(page.get_by_text("No adapter is like this")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    admin.put(adapter.path, json={"replicas": 1, "tier": "device"}).raise_for_status()
    row = row_of(page, adapter)
    expect(row.get_by_text("in a slot on 1, pinned")).to_be_visible()
    expect(row.get_by_text("slot, wanted here")).to_be_visible(timeout=30_000)  # control's round, the poll
    moves = page.get_by_role("table", name=re.compile("^Loads and evictions"))
    expect(moves.get_by_role("row").filter(has_text=adapter.name).first).to_contain_text("loaded")


def test_without_a_stream_the_page_looks_by_itself(ui: Ui, admin: httpx.Client, adapter: Adapter) -> None:
    page = ui.log_in("/password", expected={503})
    refused = {"detail": "Too many streams.", "status": 503}
    page.route(
        re.compile("/api/v1/changes"),
        lambda route: route.fulfill(status=503, json=refused, content_type="application/problem+json"),
    )
    page.goto(f"{ui.base_url}/admin/placement?name={adapter.name}")
    expect(page.get_by_role("status").filter(has_text="looks every few seconds")).to_be_visible()
    admin.put(adapter.path, json={"replicas": 1}).raise_for_status()
    expect(row_of(page, adapter).get_by_text("in memory on 1, pinned")).to_be_visible(timeout=30_000)


def test_an_adapter_is_placed_and_left_to_traffic_by_keyboard(
    ui: Ui, admin: httpx.Client, adapter: Adapter
) -> None:
    admin.put(adapter.path, json={"replicas": 1}).raise_for_status()
    page = ui.log_in(f"/placement?name={adapter.name}", expected={412})
    page.emulate_media(reduced_motion="reduce")
    opener = page.get_by_role("button", name=f"Place {adapter.name}…")
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    number = dialog.get_by_label("Replicas that hold it, at least")
    number.fill("2")
    settled(page)
    assert violations(page) == []
    admin.put(adapter.path, json={"replicas": 1, "tier": "device"}).raise_for_status()  # somebody else
    dialog.get_by_role("button", name="Save").focus()
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("Somebody else changed this meanwhile")).to_be_visible()
    dialog.get_by_role("button", name="Save mine").press("Enter")
    expect(dialog).to_have_count(0)
    now = admin.get(adapter.path).json()
    assert (now["replicas"], now["tier"]) == (2, "device"), "only what was changed here"
    expect(row_of(page, adapter).get_by_text("of 2, short")).to_be_visible()
    opener.press("Enter")
    page.get_by_role("button", name="Leave to traffic…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Leave to traffic", exact=True).press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert admin.get(adapter.path).json()["state"] == "unplaced"


def test_the_fleets_pages_are_accessible_in_both_themes_and_on_a_phone(
    ui: Ui, admin: httpx.Client, adapter: Adapter
) -> None:
    admin.put(adapter.path, json={"replicas": 1, "tier": "device"}).raise_for_status()
    replica = admin.get("/api/v1/replicas").json()["data"][0]["id"]
    base = admin.get("/api/v1/bases").json()["data"][0]["id"]
    fleet = ("/placement", "/replicas", "/pools", "/bases")
    places = [*fleet, f"/replicas/{replica}", f"/bases/{base}/left-behind"]
    page = ui.log_in("/placement")
    found: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for place in places:
            page.goto(f"{ui.base_url}/admin{place}")
            settled(page)
            found += violations(page)
            page.set_viewport_size({"width": 390, "height": 844})
            found += too_wide(page)
            page.set_viewport_size({"width": 1280, "height": 900})
    assert found == []


def test_rules_of_pools_are_edited_by_two_who_hear_of_each_other(ui: Ui, admin: httpx.Client) -> None:
    page = ui.log_in("/pools", expected={412})
    page.get_by_role("button", name="Add rule").click()
    rule = page.get_by_role("region", name="Rule 1")
    rule.get_by_label("Goes to the pool").fill("long")
    rule.get_by_label("Prompt of at least").fill("16000")
    theirs = [{"pool": "batch", "service_class": "batch"}]
    admin.put("/api/v1/pool-rules", json={"rules": theirs}).raise_for_status()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Somebody else changed this meanwhile")).to_be_visible()
    page.get_by_role("button", name="Save mine").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    now = admin.get("/api/v1/pool-rules").json()["rules"]
    assert [(each["pool"], each["min_prompt_tokens"]) for each in now] == [("long", 16_000)]
    page.get_by_role("button", name="Remove rule 1").click()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("There is no rule")).to_be_visible()


def test_a_replica_has_a_page_where_it_is_changed_and_removed(ui: Ui, admin: httpx.Client) -> None:
    made = admin.post("/api/v1/replicas", json={"url": "http://127.0.0.8:8100"}).raise_for_status().json()
    page = ui.log_in("/replicas", expected={404})
    page.get_by_role("link", name="127.0.0.8:8100").click()
    expect(page.get_by_role("heading", name="127.0.0.8:8100")).to_be_visible()
    pools = page.get_by_role("combobox", name="It is in")
    pools.fill("long")
    pools.press("Enter")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert admin.get(f"/api/v1/replicas/{made['id']}").json()["pools"] == ["general", "long"]
    page.get_by_role("button", name="Remove…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type").fill("127.0.0.8:8100")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", name="Replicas")).to_be_visible()
    assert admin.get(f"/api/v1/replicas/{made['id']}").status_code == 404


def test_an_upgrade_is_begun_seen_and_given_up(ui: Ui, admin: httpx.Client) -> None:
    digest = "ab" * 32
    page = ui.log_in("/bases")
    page.get_by_role("button", name="Upgrade…").click()
    page.get_by_label("Digest of the new weights").fill(digest)
    page.get_by_role("button", name="Let them in").click()
    upgrades = page.get_by_role("table", name=re.compile("^Upgrades of"))
    row = upgrades.get_by_role("row").filter(has_text=digest[:12])
    expect(row.get_by_text("proving")).to_be_visible()
    row.get_by_role("button", name="End…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Those from before").check()
    dialog.get_by_label("Type").fill(digest[:8])
    dialog.get_by_role("button", name="End it").click()
    expect(row.get_by_text("abandoned")).to_be_visible()
    assert digest not in admin.get("/api/v1/base-weights").json()["digests"]


def test_the_command_line_places_and_shows_the_same(stack: Rig, adapter: Adapter) -> None:
    def motet(*words: str) -> Any:
        named = ["placement", "--url", stack.base_url, "--admin-token", stack.token, *words, "--json"]
        done = CliRunner().invoke(app, named)
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    of = ("--tenant", adapter.tenant)
    assert motet("pin", adapter.name, *of, "--tier", "device")["replicas"] == 1
    assert motet("show", adapter.name, *of)["tier"] == "device"
    listed = motet("list", "--name", adapter.name)
    assert [(each["adapter"], each["wanted"]["pinned"]) for each in listed] == [(adapter.name, True)]
    assert motet("list", "--name", adapter.name, "--unwanted") == []
    assert motet("quota", *of)["wanted_slots"] == 1
    assert isinstance(motet("moves"), list)
    assert motet("unpin", adapter.name, *of)["deleted"] is True
