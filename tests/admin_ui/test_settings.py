"""Settings: of an account, of the store, and of a tenant that stays or leaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import expect

from tests.admin_ui.conftest import Ui

Maker = Callable[..., dict[str, Any]]


def test_an_account_chooses_its_colours_and_leaves_everywhere(ui: Ui) -> None:
    page = ui.log_in("/settings", expected={401})
    page.get_by_text("Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    expect(page.get_by_role("row", name="House house")).to_be_visible()  # a way to log in
    page.get_by_role("button", name="Log out everywhere…").click()
    page.get_by_role("dialog").get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in to Motet")).to_be_visible()


def test_the_store_is_checked_and_only_operators_see_it(ui: Ui, tenant: str) -> None:
    page = ui.log_in("/settings/store")
    expect(page.get_by_text("answers", exact=True)).to_be_visible()
    page.get_by_role("button", name="Check…").click()
    page.get_by_role("dialog").get_by_role("button", name="Check", exact=True).click()
    panel = page.get_by_role("dialog", name="Check of the store")
    expect(panel.get_by_role("row").filter(has_text="Orphans")).to_be_visible()
    assert "check=" in page.url
    page.reload()
    expect(panel.get_by_text("clean").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("row").filter(has_text="sampled")).to_be_visible()
    page.close()
    ui.context.clear_cookies()
    page = ui.log_in_at_provider("dev", "/settings")
    expect(page.get_by_role("tab", name="Account")).to_be_visible()
    expect(page.get_by_role("tab", name="Object store")).to_have_count(0)


def test_a_tenants_rules_are_changed_and_it_leaves_and_comes_back(
    ui: Ui, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    one = f"/api/v1/tenants/{made['id']}"
    admin.post(f"{one}/keys", json={"name": "a"}).raise_for_status()
    page = ui.log_in(f"/tenants/{made['id']}/settings")
    page.get_by_label("ended_keys").fill("30")
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    rules = {rule["kind"]: rule for rule in admin.get(f"{one}/retention").json()["rules"]}
    assert (rules["ended_keys"]["days"], rules["superseded_exports"]["is_default"]) == (30, True)
    page.get_by_role("combobox", name="Response cache").click()
    page.get_by_role("option", name="greedy").click()
    page.get_by_role("button", name="Save").last.click()
    expect(page.get_by_text("Saved.")).to_have_count(2)
    assert admin.get(f"{one}/caches").json()["response_cache"] == "greedy"
    page.get_by_role("button", name="Drop…").click()
    page.get_by_role("dialog").get_by_label("Type").fill(made["name"])
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("Dropped, with")).to_be_visible()

    page.get_by_role("button", name="Off-board…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("requests of 1 live key are refused")
    dialog.get_by_role("button", name="Off-board").click()
    expect(dialog.get_by_text("That is not the name.")).to_be_visible()
    dialog.get_by_label("Grace").fill("48")
    dialog.get_by_label("Type").fill(made["name"])
    dialog.get_by_role("button", name="Off-board").click()
    expect(page.get_by_text("waiting", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Drop…")).to_have_count(0)
    page.get_by_role("button", name="Undo…").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Off-board…")).to_be_visible()
    assert admin.get(one).json()["lifecycle"] == "active"


def test_a_number_on_its_way_is_none_yet(ui: Ui, admin: httpx.Client, new_tenant: Maker) -> None:
    """Typed key by key. A lone minus would be null in JSON, which is no limit."""
    made = new_tenant(requests_per_minute=60)
    page = ui.log_in(f"/tenants/{made['id']}/limits")
    field = page.get_by_label("Requests a minute")
    expect(field).to_have_value("60")
    field.press("ControlOrMeta+a")
    field.press_sequentially("-")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    field.press("Tab")
    expect(field).to_have_value("60")
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/playground")
    page.get_by_role("button", name="More parameters").click()
    page.get_by_label("Presence penalty").press_sequentially("-0.5")
    expect(page).to_have_url(re.compile(r"presence_penalty=-0\.5"))
