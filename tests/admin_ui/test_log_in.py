"""Getting in and out: by password and provider, again in the middle of a form, and not at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.admin_ui.conftest import Ui, add_operator, enter, fill_log_in
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]


def test_a_password_lets_in_and_leads_to_where_one_wanted_to_go(ui: Ui, tenant: str) -> None:
    page = ui.open(f"/tenants/{tenant}/keys?state=live", expected={401})
    fill_log_in(page, password="not the password")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    fill_log_in(page)
    expect(page.get_by_role("tab", name="Keys")).to_have_attribute("aria-selected", "true")
    expect(page).to_have_url(re.compile(rf"/admin/tenants/{tenant}/keys\?state=live$"))


def test_a_provider_lets_in_whom_its_groups_let_in(ui: Ui, tenant: str) -> None:
    page = ui.log_in_at_provider("nobody")
    expect(page.get_by_role("alert")).to_contain_text("nobody gave you a role")
    page.get_by_role("link", name="Log in with House").click()
    page.get_by_role("button", name="olga").click()
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    expect(page.get_by_role("link", name="Audit")).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in ui.context.cookies()}
    assert not [name for name in cookies if name.startswith("motet_flow_")]
    assert cookies["motet_session"]["httpOnly"]
    assert cookies["motet_session"]["sameSite"] == "Strict"


@pytest.mark.parametrize("person", ["dev", "viewer"])
def test_each_role_sees_what_it_may_do_and_nothing_that_is_refused(ui: Ui, tenant: str, person: str) -> None:
    page = ui.log_in_at_provider(person, f"/tenants/{tenant}")
    expect(page.get_by_role("heading", name="house-tenant")).to_be_visible()
    may_keys = person == "dev"
    expect(page.get_by_role("link", name="Replicas")).to_have_count(0)
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    expect(page.get_by_role("button", name="Suspend…")).to_have_count(0)
    expect(page.get_by_role("tab", name="Keys")).to_have_count(int(may_keys))
    page.get_by_role("tab", name="Limits").click()
    expect(page.get_by_label("Requests a minute")).to_be_disabled()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    if may_keys:
        page.get_by_role("tab", name="Keys").click()
        page.get_by_role("button", name="Create key…").click()
        expect(page.get_by_role("dialog")).to_be_visible()


def test_what_is_typed_outlives_the_session(ui: Ui, stack: Rig, new_tenant: Maker) -> None:
    """In one page by password, in another through the provider, in a window beside it; sent once."""
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/limits", expected={401})
    page.get_by_label("Requests a minute").fill("77")
    ui.context.clear_cookies()
    page.get_by_role("button", name="Save").click()
    fill_log_in(page)
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.get_by_label("Requests a minute")).to_have_value("77")

    with stack.admin() as admin:
        limits = admin.get(f"/api/v1/tenants/{made['id']}/limits").json()
        assert (limits["requests_per_minute"], limits["tokens_per_minute"]) == (77, None)
        saved = admin.get("/api/v1/audit", params={"tenant": made["id"], "action": "limits."}).json()
    assert [event["details"] for event in saved["data"]] == [{"requests_per_minute": 77}]


def test_the_provider_lets_in_again_beside_the_page(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in_at_provider("olga", f"/tenants/{made['id']}/limits")
    page.get_by_label("Tokens a minute", exact=True).fill("5000")
    ui.context.clear_cookies()
    page.get_by_role("button", name="Save").click()
    with ui.context.expect_page() as beside:
        page.get_by_role("dialog").get_by_role("link", name="Log in with House").click()
    beside.value.get_by_role("button", name="olga").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.get_by_label("Tokens a minute", exact=True)).to_have_value("5 000")


def test_logging_out_everywhere_ends_other_browsers_within_five_seconds(ui: Ui, stack: Rig) -> None:
    page = ui.log_in("/tenants", expected={401}, clock=True)
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    with httpx.Client(base_url=stack.base_url) as other:
        login = {"email": "operator@example.com", "password": "a pass phrase of the rig"}
        csrf = other.post("/api/v1/session", json=login).json()["csrf_token"]
        assert other.delete("/api/v1/sessions", headers={"x-csrf-token": csrf}).status_code == 204
        assert other.get("/api/v1/session").status_code == 401
    page.clock.run_for(5_000)
    expect(page.get_by_role("dialog")).to_contain_text("Your session has ended")  # by itself


def test_a_given_password_is_changed_first(ui: Ui, stack: Rig) -> None:
    email, given, chosen = "new@example.com", "the one that was given", "the one that she chose"
    add_operator(stack, email, given, must_change=True)
    page = ui.open("/tenants", expected={401})
    fill_log_in(page, email, given)
    expect(page.get_by_role("heading", name="Change password")).to_be_visible()
    page.get_by_label("Current password").fill(given)
    page.get_by_label("New password", exact=True).fill(chosen)
    page.get_by_label("New password, again").fill("another")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("It is not the same.")).to_be_visible()
    page.get_by_label("New password, again").fill(chosen)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()


def test_without_the_token_of_the_page_nothing_changes(ui: Ui, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in("/tenants", expected={403})
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    asked = "async (url) => { const a = await fetch(url, {method: 'POST', body: '{}', headers: \
        {'content-type': 'application/json'}}); return [a.status, (await a.json()).code]; }"
    url = f"{ui.base_url}/api/v1/tenants/{made['id']}/suspend"
    assert page.evaluate(asked, url) == [403, "csrf_failed"]


def test_a_token_of_the_session_before_is_exchanged_and_the_change_is_sent_once(
    ui: Ui, new_tenant: Maker, admin: httpx.Client
) -> None:
    """Somebody logged in anew in another tab, which the page has not heard of."""
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/limits", expected={403})
    page.get_by_label("Requests a minute").fill("42")
    enter(ui.context, ui.base_url)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert admin.get(f"/api/v1/tenants/{made['id']}/limits").json()["requests_per_minute"] == 42


def test_no_log_in_leads_out(ui: Ui) -> None:
    page = ui.open("/log-in?return_to=//evil.example/", expected={401})
    fill_log_in(page)
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    _leave(page)
    page.goto(f"{ui.base_url}/api/v1/session/oidc/house?return_to=//evil.example/")
    page.get_by_role("button", name="olga").click()
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    assert page.url.startswith(f"{ui.base_url}/admin/")


def _leave(page: Page) -> None:
    page.get_by_role("button", name=re.compile("Account")).click()
    page.get_by_role("menuitem", name="Log out", exact=True).click()
    expect(page.get_by_role("heading", name="Log in to Motet")).to_be_visible()
