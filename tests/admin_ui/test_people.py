"""Members and webhooks of a tenant, as whoever looks after them lives with them; and the keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
from playwright.sync_api import expect

from tests.admin_ui.conftest import Ui
from tests.admin_ui.test_keys import take_secret
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]


def reaches(stack: Rig, token: str, tenant: str, path: str = "") -> int:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.get(f"{stack.base_url}/api/v1/tenants/{tenant}{path}", headers=headers).status_code


def test_a_member_is_added_given_a_token_and_another_role_and_removed(
    ui: Ui, stack: Rig, new_tenant: Maker
) -> None:
    made, email = new_tenant(), f"{uuid4().hex[:10]}@example.com"
    page = ui.log_in(f"/tenants/{made['id']}/members")
    expect(page.get_by_text("There is no member yet")).to_be_visible()
    page.get_by_role("button", name="Add member…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Email").fill(email)
    dialog.get_by_role("button", name="Add", exact=True).dblclick()  # makes one
    expect(page.get_by_role("heading", name=email)).to_be_visible()

    page.get_by_role("button", name="Create token…").click()
    page.get_by_role("dialog").get_by_label("Name").fill("ci")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    token = take_secret(page)
    kept = "JSON.stringify([document.documentElement.outerHTML, {...localStorage}, {...sessionStorage}])"
    assert token.rpartition("_")[2] not in page.evaluate(kept)
    assert (reaches(stack, token, made["id"]), reaches(stack, token, made["id"], "/keys")) == (200, 403)

    page.get_by_role("combobox", name="Role").click()
    page.get_by_role("option", name="developer").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert reaches(stack, token, made["id"], "/keys") == 200

    page.get_by_role("button", name="Set password…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New password").fill("too short")
    dialog.get_by_role("button", name="Set password").click()
    expect(dialog.get_by_text("It has 9 of at least 12 characters.")).to_be_visible()
    dialog.get_by_label("New password").fill("a pass phrase of a member")
    dialog.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    with httpx.Client(base_url=stack.base_url) as browser:
        entered = {"email": email, "password": "a pass phrase of a member"}
        assert browser.post("/api/v1/session", json=entered).status_code == 201

    page.get_by_role("button", name=re.compile("^Revoke .*…$")).click()
    page.get_by_role("dialog").get_by_label("Type").fill("ci")
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
    assert reaches(stack, token, made["id"]) == 401

    page.get_by_role("button", name="Remove…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("its 0 tokens")
    dialog.get_by_label("Type").fill(email)
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There is no member yet")).to_be_visible()


def test_two_who_change_one_members_role_hear_of_each_other(
    ui: Ui, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    members = f"/api/v1/tenants/{made['id']}/members"
    person = {"email": f"{uuid4().hex[:10]}@example.com", "role": "viewer"}
    member = admin.post(members, json=person).json()
    page = ui.log_in(f"/tenants/{made['id']}/members/{member['id']}", expected={412})
    page.get_by_role("combobox", name="Role").click()
    page.get_by_role("option", name="developer").click()
    admin.patch(f"{members}/{member['id']}", json={"role": "billing"}).raise_for_status()
    page.get_by_role("button", name="Save").click()
    notice = page.get_by_role("alert").filter(has_text="Somebody else changed this")
    expect(notice.get_by_role("row", name="role developer billing")).to_be_visible()
    notice.get_by_role("button", name="Take what is there").click()
    expect(page.get_by_role("combobox", name="Role")).to_have_value("billing")


def test_a_webhook_is_made_pinged_rotated_disabled_and_deleted(
    ui: Ui, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/webhooks", expected={400})
    page.get_by_role("button", name="Create webhook…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("URL").fill("http://127.0.0.1/inside")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_text("can't be a webhook's")).to_be_visible()
    dialog.get_by_label("URL").fill("https://hooks.example.com/motet")
    dialog.get_by_role("button", name="Create").click()
    first = take_secret(page)
    assert first.startswith("whsec_")

    page.get_by_role("link", name="https://hooks.example.com/motet").click()
    page.get_by_role("button", name="Send a ping").click()
    sent = page.get_by_role("row").filter(has_text="ping")
    expect(sent).to_contain_text("waiting")
    expect(sent.get_by_role("button", name="Send ping again")).to_have_count(0)  # it is on its way

    page.get_by_role("button", name="Rotate…").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    assert take_secret(page) != first
    expect(page.get_by_text("Secret before signs until")).to_be_visible()

    page.get_by_label("Description").fill("of the house")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.get_by_role("button", name="Disable…").click()
    page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    expect(page.get_by_text("disabled", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Send a ping")).to_have_count(0)
    expect(sent).to_contain_text("failed")
    page.get_by_role("button", name="Make active").click()
    sent.get_by_role("button", name="Send ping again").click()
    expect(sent).to_contain_text("waiting")

    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_label("Type").fill("delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("There is no webhook yet")).to_be_visible()
    actions = admin.get("/api/v1/audit", params={"tenant": made["id"], "action": "webhook."}).json()["data"]
    assert [event["action"] for event in actions] == [
        f"webhook.{done}"
        for done in ("delete", "redeliver", "update", "update", "update", "rotate", "ping", "create")
    ]


def test_a_list_is_walked_and_searched_by_keyboard_and_never_while_typing(
    ui: Ui, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    for name in ("first", "second", "third"):
        admin.post(f"/api/v1/tenants/{made['id']}/keys", json={"name": name}).raise_for_status()
    page = ui.log_in(f"/tenants/{made['id']}/keys")
    expect(page.get_by_role("link", name="third")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="third")).to_be_focused()  # newest first
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="second")).to_be_focused()
    page.keyboard.press("/")
    search = page.get_by_label("Name begins with")
    expect(search).to_be_focused()
    page.keyboard.type("j/k?")
    expect(search).to_have_value("j/k?")
    search.fill("")
    search.blur()
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(sheet).to_contain_text("Next row of the list")
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)

    key = admin.get(f"/api/v1/tenants/{made['id']}/keys").json()["data"][0]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("Control+k")
    page.get_by_label("Find", exact=True).last.fill(f"mt_{key['id'][:8]}_a-secret-part")
    found = page.get_by_role("dialog").get_by_text(f"Key mt_{key['id']}_…")
    expect(found).to_be_visible()
    found.click()
    expect(page.get_by_role("heading", name="third")).to_be_visible()
    assert not [url for url in asked if "secret-part" in url]
