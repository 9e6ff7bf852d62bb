"""The life of an API key, as its owner lives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Page, Route, expect

from tests.admin_ui.conftest import Ui
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]
HOSTILE = '<img src=x onerror="window.pwned=1">'


def opens(stack: Rig, secret: str) -> int:
    answer = httpx.get(f"{stack.base_url}/v1/models", headers={"authorization": f"Bearer {secret}"})
    return answer.status_code


def take_secret(page: Page) -> str:
    """Nothing closes the dialog but the word that it is stored."""
    shown = page.get_by_test_id("secret")
    secret = shown.inner_text()
    page.keyboard.press("Escape")
    page.mouse.click(5, 5)
    expect(shown).to_be_visible()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Say so first.")).to_be_visible()
    page.get_by_label("I have stored it").check()
    page.get_by_role("button", name="Done").click()
    expect(shown).to_have_count(0)
    return secret


def test_a_key_is_made_once_used_rotated_and_revoked(ui: Ui, stack: Rig, new_tenant: Maker) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/keys")
    page.get_by_role("button", name="Create key…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(HOSTILE)
    held: list[Route] = []
    page.route("**/keys", lambda route: held.extend([route]))
    with page.expect_request(lambda asked: asked.method == "POST"):
        dialog.get_by_role("button", name="Create").dblclick()  # makes one
    page.keyboard.press("Escape")  # would close it before its secret is there
    expect(dialog).to_be_visible()
    held[0].continue_()
    page.unroute("**/keys")
    first = take_secret(page)
    assert opens(stack, first) == 200
    kept = "JSON.stringify([document.documentElement.outerHTML, {...localStorage}, {...sessionStorage}])"
    assert first.rpartition("_")[2] not in page.evaluate(kept)

    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_role("button", name="Rotate…").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    second = take_secret(page)
    assert (opens(stack, first), opens(stack, second)) == (200, 200)
    page.get_by_role("button", name="End the secret before…").click()
    page.get_by_role("button", name="End it").click()
    expect(page.get_by_role("button", name="End the secret before…")).to_have_count(0)
    assert (opens(stack, first), opens(stack, second)) == (401, 200)

    page.get_by_role("button", name="Revoke…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog.get_by_text("That is not the name.")).to_be_visible()
    dialog.get_by_label("Type").fill(HOSTILE)
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Rotate…")).to_have_count(0)
    assert opens(stack, second) == 401
    assert page.evaluate("window.pwned") is None


def test_two_who_edit_one_key_hear_of_each_other(ui: Ui, admin: httpx.Client, new_tenant: Maker) -> None:
    made = new_tenant()
    keys = f"/api/v1/tenants/{made['id']}/keys"
    key = admin.post(keys, json={"name": "shared"}).json()["key"]
    page = ui.log_in(f"/tenants/{made['id']}/keys/{key['id']}", expected={412})
    name = page.get_by_label("Name")
    name.fill("mine")
    policy = page.get_by_role("region", name="What it may do")
    admin.patch(f"{keys}/{key['id']}", json={"name": "theirs", "service_class": "batch"}).raise_for_status()
    policy.get_by_role("button", name="Save").click()
    notice = page.get_by_role("alert").filter(has_text="Somebody else changed this")
    expect(notice.get_by_role("row", name="name mine theirs")).to_be_visible()
    expect(name).to_have_value("mine")
    notice.get_by_role("button", name="Save mine").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    after = admin.get(f"{keys}/{key['id']}").json()
    assert (after["name"], after["service_class"]) == ("mine", "batch")


def test_lists_go_by_pages_and_filters_of_the_address(ui: Ui, admin: httpx.Client, new_tenant: Maker) -> None:
    made = new_tenant()
    for number in range(55):
        wanted = {"name": f"{'odd' if number % 2 else 'even'}-{number:02}"}
        admin.post(f"/api/v1/tenants/{made['id']}/keys", json=wanted).raise_for_status()
    page = ui.log_in(f"/tenants/{made['id']}/keys")
    expect(page.get_by_role("link", name="even-54")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_role("link", name="even-00")).to_be_visible()
    assert "cursor=" in page.url
    page.get_by_label("Name begins with").fill("odd-")
    expect(page.get_by_role("link", name="odd-53")).to_be_visible()  # the first page of what is left
    assert "cursor=" not in page.url
    page.get_by_role("link", name="odd-01").click()
    expect(page.get_by_role("heading", name="odd-01")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Name begins with")).to_have_value("odd-")
    page.reload()
    expect(page.get_by_role("link", name="even-54")).to_have_count(0)
