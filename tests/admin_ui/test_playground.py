"""The playground: two models beside each other, stopped and refused, by a key that nobody else ever holds."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, Request, Route, expect

from adapters.base import BaseSpec
from tests.adapters.uploads import upload
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import violations
from tests.admin_ui.test_keys import opens
from tests.rig.fake_replica import WORD
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]
HOSTILE = '<img src=x onerror="window.pwned=1">'
KEPT = """
JSON.stringify([
  document.documentElement.outerHTML, location.href, {...localStorage}, {...sessionStorage}, document.cookie,
  [...document.querySelectorAll('input, textarea')].map((field) => field.value),
])
"""


def keys_of(admin: httpx.Client, tenant: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        admin.get(f"/api/v1/tenants/{tenant}/keys").raise_for_status().json()["data"]
    )
    return found


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pirate(stack: Rig, admin: httpx.Client, tenant: str, demo_model_dir: Path) -> str:
    """An adapter of the house tenant, ready."""
    name = f"pirate-{uuid4().hex[:6]}"
    made = upload(base=BaseSpec.from_dir(demo_model_dir, stack.base_name))
    files = {"adapter_config.json": made.config_bytes(), "adapter_model.safetensors": made.weights_bytes()}
    root = f"/api/v1/tenants/{tenant}/adapters/{name}/versions"
    admin.post(root, files=files).raise_for_status()
    deadline = time.monotonic() + 60
    while admin.get(f"{root}/1").json()["state"] != "ready":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return name


def test_two_models_stream_beside_each_other_by_a_key_that_is_gone_afterwards(
    ui: Ui, stack: Rig, admin: httpx.Client, tenant: str, pirate: str
) -> None:
    sent: list[Request] = []
    ui.context.on("request", lambda request: sent.append(request) if "/v1/chat" in request.url else None)
    page = ui.log_in(f"/tenants/{tenant}/playground?model={pirate}&seed=40&max_tokens=200")
    page.get_by_role("button", name="Compare with another").click()
    page.get_by_role("combobox", name="Beside it").fill(stack.base_name)
    page.get_by_label("System prompt").fill("Speak as an otter.")
    ask(page, f"What is a weir? {HOSTILE}")
    answers = page.get_by_role("article")
    expect(answers).to_have_count(2)
    for answer in answers.all():
        expect(answer).to_contain_text((WORD * 40).strip())
        expect(answer.get_by_role("status")).to_have_text("answered")
        expect(answer).to_contain_text("tokens in")
        expect(answer).to_contain_text(re.compile(r"40\sout\. (no price|\$0\.)"))
    expect(answers.first).to_contain_text(f"{pirate} version 1")
    expect(answers.first).to_contain_text("first text after")
    expect(answers.last).to_contain_text("The base answered")
    assert HOSTILE in page.get_by_role("log").inner_text()
    assert page.evaluate("window.pwned") is None

    bodies = [json.loads(request.post_data or "") for request in sent]
    assert [body["messages"][0]["content"] for body in bodies] == ["Speak as an otter."] * 2
    assert {body["seed"] for body in bodies} == {40}
    (secret,) = {request.all_headers()["authorization"].removeprefix("Bearer ") for request in sent}
    assert not any("cookie" in request.all_headers() for request in sent)
    assert secret.startswith("mt_")
    assert secret.rpartition("_")[2] not in page.evaluate(KEPT)
    assert "weir" not in page.url
    (key,) = [
        key for key in keys_of(admin, tenant) if key["revoked_at"] is None and key["name"] == "playground"
    ]
    assert (key["scopes"], key["id"]) == (["inference"], secret.split("_")[1])
    left = datetime.fromisoformat(key["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=30) < left <= timedelta(hours=1)

    page.get_by_role("tab", name="Limits").click()
    expect(page.get_by_label("Requests a minute")).to_be_visible()
    until(lambda: opens(stack, secret) == 401)
    assert {key["revoked_at"] is None for key in keys_of(admin, tenant) if key["name"] == "playground"} == {
        False
    }


def test_what_is_stopped_is_billed_as_far_as_it_came_and_a_closed_page_leaves_no_key(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/playground?model={stack.base_name}&max_tokens=8000")

    def priced(route: Route) -> None:
        """No price book holds here; how money is shown, this says."""
        told = route.fetch().json()
        if told["billed"] is not None:
            told["billed"] |= {"amount": "0.0000141239", "currency": "USD"}
        route.fulfill(json=told)

    page.route("**/receipt", priced)
    ask(page, "Count to ten thousand.")
    answer = page.get_by_role("article")
    expect(answer).to_contain_text(WORD.strip())
    page.get_by_role("button", name="Stop").click()
    expect(answer.get_by_role("status")).to_have_text("stopped")
    expect(answer).to_contain_text("What was computed until then is billed.")
    expect(answer).to_contain_text("$0.0000141")
    page.get_by_label("Message").fill("And now?")  # while nothing runs, it can be asked again
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    (key,) = keys_of(admin, made["id"])
    assert key["revoked_at"] is None
    page.goto("about:blank")
    until(lambda: keys_of(admin, made["id"])[0]["revoked_at"] is not None)


def test_a_page_that_is_left_while_its_key_is_made_leaves_none(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/playground?model={stack.base_name}")
    held: list[Route] = []
    page.route(
        f"**/tenants/{made['id']}/keys",
        lambda route: held.append(route) if route.request.method == "POST" else route.continue_(),
    )
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/keys")):
        ask(page, "Hello")
    page.get_by_role("tab", name="Limits").click()
    expect(page.get_by_label("Requests a minute")).to_be_visible()
    with page.expect_request(lambda request: request.method == "DELETE"):
        held[0].continue_()
    until(lambda: [key["revoked_at"] is not None for key in keys_of(admin, made["id"])] == [True])


def test_a_refusal_says_when_it_passes_and_what_to_copy_holds_no_key(
    ui: Ui, stack: Rig, new_tenant: Maker
) -> None:
    made = new_tenant(requests_per_minute=1)
    page = ui.log_in(f"/tenants/{made['id']}/playground?model={stack.base_name}", expected={429, 404})
    ask(page, "Once.")
    expect(page.get_by_role("article").get_by_role("status")).to_have_text("answered")
    ask(page, "Twice.")
    alert = page.get_by_role("article").last.get_by_role("alert")
    expect(alert).to_contain_text("tenant.requests_per_minute")
    expect(alert).to_contain_text(re.compile(r"It may pass at .+, in \d+\ss\."))
    expect(page.get_by_role("article").last).to_contain_text("Request")
    page.get_by_role("combobox", name="Model").fill("nobody-has-this")
    page.keyboard.press("Tab")
    alert.get_by_role("button", name="Ask again").click()
    expect(page.get_by_role("article").last).to_contain_text(
        re.compile("Nobody has a model|requests_per_minute")
    )

    assert violations(page) == []
    ui.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("combobox", name="Model").fill(stack.base_name)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Copy as curl").click()
    curl = page.evaluate("navigator.clipboard.readText()")
    assert f"{stack.base_url}/v1/chat/completions" in curl
    assert "$MOTET_API_KEY" in curl
    assert "Twice." in curl
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("button", name="Copy as Python")).to_have_count(0)  # it says that it did
    python = page.evaluate("navigator.clipboard.readText()")
    compile(python, "copied", "exec")
    assert f'model="{stack.base_name}"' in python
    assert "mt_" not in curl + python


def test_who_may_make_no_key_asks_with_one_that_was_given(
    ui: Ui, stack: Rig, tenant: str, admin: httpx.Client
) -> None:
    page = ui.log_in_at_provider("viewer", f"/tenants/{tenant}/playground?model={stack.base_name}")
    expect(page.get_by_text("You may not make one")).to_be_visible()
    given = stack.key_of(admin, tenant, scopes=["inference"])
    page.get_by_placeholder("mt_…").fill("not a key")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("That is no API key")).to_be_visible()
    page.get_by_placeholder("mt_…").fill(given.secret)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("which you gave")).to_be_visible()
    ask(page, "Hello.")
    expect(page.get_by_role("article")).to_contain_text(WORD.strip())
    expect(page.get_by_role("article").get_by_role("status")).to_have_text("answered")
    assert given.secret.rpartition("_")[2] not in page.evaluate(KEPT)
    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_placeholder("mt_…")).to_have_value("")
    assert opens(stack, given.secret) == 200  # it is its owner's, and goes on


def test_another_tenants_key_is_refused_before_it_asks(ui: Ui, stack: Rig, new_tenant: Maker) -> None:
    made, other = new_tenant(), stack.tenant()
    page = ui.log_in(f"/tenants/{made['id']}/playground")
    page.get_by_role("button", name="Use a key of your own…").click()
    page.get_by_placeholder("mt_…").fill(other.secret)
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("has no such key")).to_be_visible()
