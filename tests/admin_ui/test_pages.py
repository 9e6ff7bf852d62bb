"""What pages do: tenants, replicas and the audit log, by keyboard and with files; and what the wire says."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import expect

from gateway.admin_ui.build import FOLDER
from gateway.principal import Role
from tests.admin_ui.conftest import Ui

Maker = Callable[..., dict[str, Any]]
FIRST_LOAD_BYTES = 300 * 1000


def test_a_tenant_is_made_found_suspended_and_resumed_by_keyboard(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in("/audit")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_placeholder("A page, tenant, adapter, key or request").fill(made["name"])
    expect(page.get_by_role("dialog").get_by_text("Tenant", exact=True)).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=made["name"])).to_be_visible()
    page.get_by_role("button", name="Suspend…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("requests of 0 live keys are refused")
    page.get_by_label(f"Type {made['name']} to go on").fill(made["name"])
    page.keyboard.press("Enter")
    expect(page.get_by_text("suspended", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_text("active", exact=True)).to_be_visible()


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
    words = {role.value for role in Role} - {"billing"}  # which is a word of its own, too
    literal = [word for word in words if re.search(rf"""["'`]{word}["'`]""", scripts)]
    assert not [*literal, *(word for word in ("tenant_admin", "is_operator") if word in scripts)]
