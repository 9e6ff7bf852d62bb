"""Every page: accessible, in both themes, on a phone, with its states, and by keyboard."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from gateway.admin_ui.build import FOLDER
from tests.admin_ui.conftest import Ui

Maker = Callable[..., dict[str, Any]]
AXE = Path(__file__).resolve().parents[2] / "admin_ui" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
FIRST_LOAD_BYTES = 300 * 1000


def violations(page: Page) -> list[str]:
    """Serious and critical ones, with what they stand on."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    script = "async (tags) => (await axe.run({runOnly: {type: 'tag', values: tags}})).violations"
    found = page.evaluate(script, TAGS)
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{page.url}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in serious]


def settled(page: Page) -> None:
    """Nothing loads, and no dialog is on its way in or out."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("status", name=re.compile("^Loading"))).to_have_count(0)
    page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})))")


def wide(page: Page) -> list[str]:
    """What is wider than a phone is scrolled inside, once the page has drawn itself anew. (Waiting by a
    function would evaluate text, which the page's policy refuses.)"""
    for _ in range(100):
        if page.evaluate("document.documentElement.scrollWidth") <= 390:
            return []
        page.wait_for_timeout(50)
    return [f"{page.url} is wider than a phone"]


def places(admin: httpx.Client, tenant: dict[str, Any]) -> list[str]:
    one = f"/tenants/{tenant['id']}"
    root = f"/api/v1{one}"
    key = admin.post(f"{root}/keys", json={"name": "a"}).json()["key"]["id"]
    person = {"email": f"{uuid4().hex[:8]}@example.com", "role": "viewer"}
    member = admin.post(f"{root}/members", json=person).json()["id"]
    admin.post(f"{root}/members/{member}/tokens", json={"name": "t"}).raise_for_status()
    hook = admin.post(f"{root}/webhooks", json={"url": "https://hooks.example.com/"}).json()["endpoint"]["id"]
    admin.post(f"{root}/webhooks/{hook}/ping").raise_for_status()
    return [
        "/tenants",
        "/tenants?name=nobody-has-this",
        one,
        f"{one}/keys",
        f"{one}/keys/{key}",
        f"{one}/limits",
        f"{one}/audit",
        f"{one}/playground",
        f"{one}/members",
        f"{one}/members/{member}",
        f"{one}/webhooks",
        f"{one}/webhooks/{hook}",
        f"{one}/settings",
        "/settings",
        "/settings/store",
        "/replicas",
        "/audit",
        "/password",
        "/nowhere",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_in_both_themes_and_on_a_phone(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, scheme: str
) -> None:
    made = new_tenant(requests_per_minute=60)
    page = ui.open("/log-in", expected={404})
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark", reduced_motion="reduce")
    found = violations(page)
    page.close()
    page = ui.log_in()
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark", reduced_motion="reduce")
    for place in places(admin, made):
        page.goto(f"{ui.base_url}/admin{place}")
        settled(page) if place != "/nowhere" else expect(page.get_by_role("alert")).to_be_visible()
        found += violations(page)
        page.set_viewport_size({"width": 390, "height": 844})
        found += wide(page)
        page.set_viewport_size({"width": 1280, "height": 900})
    assert found == []


def test_every_dialog_is_accessible(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in("/tenants")
    page.emulate_media(reduced_motion="reduce")
    found: list[str] = []
    for place, opener in (
        ("/tenants", "Create tenant…"),
        (f"/tenants/{made['id']}", "Suspend…"),
        (f"/tenants/{made['id']}/keys", "Create key…"),
        (f"/tenants/{made['id']}/members", "Add member…"),
        (f"/tenants/{made['id']}/webhooks", "Create webhook…"),
        (f"/tenants/{made['id']}/settings", "Off-board…"),
        ("/settings/store", "Check…"),
        ("/settings", "Keyboard shortcuts"),
        ("/replicas", "Drain…"),
        ("/audit", "tenant.create"),
        ("/tenants", "Show the API call"),
        ("/tenants", "Find"),
    ):
        page.goto(f"{ui.base_url}/admin{place}")
        page.get_by_role("button", name=opener).first.click()
        expect(page.get_by_role("dialog").first).to_be_visible()
        page.wait_for_timeout(300)  # a dialog fades in, and axe measures colours
        found += violations(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert found == []


def test_a_tenant_is_made_found_suspended_and_resumed_by_keyboard(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in("/audit")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_placeholder("A page, a tenant, an adapter, a key").fill(made["name"])
    expect(page.get_by_role("dialog").get_by_text("Tenant", exact=True)).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=made["name"])).to_be_visible()
    page.get_by_role("button", name="Suspend…").focus()
    page.keyboard.press("Enter")
    page.get_by_label(f"Type {made['name']} to go on").fill(made["name"])
    page.keyboard.press("Enter")
    expect(page.get_by_text("suspended", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_text("active", exact=True)).to_be_visible()


def test_what_was_read_stays_while_the_gateway_is_away(ui: Ui, new_tenant: Maker) -> None:
    new_tenant()
    page = ui.log_in("/replicas", expected={503})
    expect(page.get_by_role("cell", name="ready")).to_be_visible()

    def away(route: Route) -> None:
        problem = {"detail": "PostgreSQL is away.", "status": 503}
        headers = {"x-request-id": "01a22c53-0000-7000-8000-000000000000"}
        route.fulfill(status=503, body=json.dumps(problem), headers=headers, content_type="application/json")

    page.route("**/api/v1/replicas*", away)
    expect(page.get_by_role("status").filter(has_text="As of")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("cell", name="ready")).to_be_visible()
    page.unroute("**/api/v1/replicas*")
    expect(page.get_by_role("status").filter(has_text="As of")).to_have_count(0, timeout=30_000)
    page.route("**/api/v1/audit*", away)
    page.get_by_role("link", name="Audit").click()
    alert = page.get_by_role("alert").filter(has_text="PostgreSQL is away.")
    expect(alert).to_contain_text("01a22c53-0000-7000-8000-000000000000", timeout=30_000)
    page.unroute("**/api/v1/audit*")
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table")).to_be_visible()


def test_a_replica_is_drained_and_taken_back(ui: Ui, admin: httpx.Client) -> None:
    made = admin.post("/api/v1/replicas", json={"url": "http://127.0.0.9:8100"}).json()
    page = ui.log_in("/replicas")
    row = page.get_by_role("row").filter(has_text="127.0.0.9")
    row.get_by_role("button", name="Drain…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(row.get_by_text("draining")).to_be_visible()
    row.get_by_role("button", name="Take back…").click()
    page.get_by_role("dialog").get_by_role("button", name="Take back").click()
    expect(row.get_by_role("button", name="Drain…")).to_be_visible()
    admin.delete(f"/api/v1/replicas/{made['id']}").raise_for_status()


def test_the_audit_log_is_filtered_and_exported(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/audit")
    page.get_by_label("What it begins with").fill("tenant.")
    expect(page.get_by_role("button", name="tenant.create")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert json.loads(lines[0])["chain"] == made["id"]
    page.get_by_label("What it begins with").fill("nothing.")
    expect(page.get_by_text("Nothing like this was changed")).to_be_visible()


def test_no_path_leads_out_of_the_ui(ui: Ui) -> None:
    """As it comes over the wire: clients tidy up `..` before they send it."""
    url = httpx.URL(ui.base_url)
    for path in (
        "/admin/../../../../etc/passwd",
        "/admin/assets/../index.html",
        "/admin/assets/..%2f..%2f..%2fpyproject.toml",
        "/admin/%2e%2e/%2e%2e/etc/passwd",
        "/admin/assets/....//....//etc/passwd",
        "/admin\\..\\etc",
        "//admin/../api/v1/tenants",
    ):
        answer = _heard(url, path)
        assert answer.split(b" ", 2)[1] in (b"404", b"400"), (path, answer[:200])
        assert b"root:" not in answer


def _heard(url: httpx.URL, path: str) -> bytes:
    head = f"GET {path} HTTP/1.1\r\nhost: a\r\naccept: text/html\r\nconnection: close\r\n\r\n"
    answer = b""
    with socket.create_connection((url.host, url.port or 80), timeout=20) as wire:
        wire.sendall(head.encode())
        while part := wire.recv(65536):
            answer += part
    return answer


def test_the_first_load_is_small_and_names_no_role() -> None:
    index = (FOLDER / "index.html").read_text()
    named = re.findall(r'"\./assets/([^"]+)"', index)
    assert any(name.endswith(".js") for name in named)
    sizes = {name: len(gzip.compress((FOLDER / "assets" / name).read_bytes(), 9)) for name in named}
    assert sum(sizes.values()) < FIRST_LOAD_BYTES, sizes
    scripts = "".join(path.read_text() for path in (FOLDER / "assets").glob("*.js"))
    assert not [role for role in ("tenant_admin", "is_operator") if role in scripts]
