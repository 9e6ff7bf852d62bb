"""What went on, and why one request was refused or slow: figures that agree with the API and the ledger."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from gateway.cli import app
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import settled, violations
from tests.rig.client import body_of
from tests.rig.rig import Rig

QUICK, SLOW_TOKENS, PROMPT = 5, 300, 5
WITHIN_S = 60.0


@dataclass(frozen=True)
class Load:
    """What one tenant asked for."""

    tenant: str
    name: str
    slow: str  # ids of requests
    refused: str


def asked(stack: Rig, headers: dict[str, str], tokens: int, *, stream: bool = False) -> httpx.Response:
    models = httpx.get(f"{stack.base_url}/v1/models", headers=headers).json()
    body = body_of(models["data"][0]["id"], tokens, prompt=PROMPT, stream=stream)
    return httpx.post(f"{stack.base_url}/v1/completions", json=body, headers=headers, timeout=60)


def until(look: Callable[[], bool]) -> None:
    """Workers write what they counted every few seconds."""
    ends = time.monotonic() + WITHIN_S
    while not look():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def load(stack: Rig, admin: httpx.Client) -> Load:
    key = stack.tenant()
    few = stack.key_of(admin, key.tenant, name="few", requests_per_minute=1)
    for number in range(QUICK):
        assert asked(stack, key.headers, 4, stream=number % 2 == 0).status_code == 200
    slow = asked(stack, key.headers, SLOW_TOKENS)
    assert asked(stack, few.headers, 4).status_code == 200
    refused = asked(stack, few.headers, 4)
    assert refused.status_code == 429
    root = f"/api/v1/tenants/{key.tenant}"
    until(lambda: figures(admin, key.tenant).get("requests") == QUICK + 3)
    until(lambda: admin.get(f"{root}/usage").json()["requests"] == QUICK + 2)
    ids = [slow.headers["x-request-id"], refused.headers["x-request-id"]]
    until(lambda: all(admin.get(f"{root}/requests/{each}").status_code == 200 for each in ids))
    return Load(key.tenant, admin.get(root).json()["name"], ids[0], ids[1])


def figures(admin: httpx.Client, tenant: str) -> dict[str, Any]:
    found = admin.get(f"/api/v1/tenants/{tenant}/metrics/requests", params={"window": "24h"}).json()["data"]
    return dict(found[0]["total"]) if found else {}


def number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text or ""))


def added(cells: list[str]) -> int:
    return sum(number(each) for each in cells if each != "unknown")


def column(page: Page, chart: str, title: str) -> list[str]:
    """Of a chart shown as a table."""
    table = page.get_by_role("table", name=re.compile(f"^{chart} [a-z/]+$"))
    titles = table.get_by_role("columnheader").all_inner_texts()
    place = next(n for n, each in enumerate(titles) if each.startswith(title))
    rows = table.get_by_role("row").filter(has=page.get_by_role("cell"))
    return [row.get_by_role("cell").nth(place - 1).inner_text() for row in rows.all()]


def test_figures_are_those_of_the_api_and_of_the_ledger(
    ui: Ui, stack: Rig, admin: httpx.Client, load: Load
) -> None:
    total = figures(admin, load.tenant)
    usage = admin.get(f"/api/v1/tenants/{load.tenant}/usage").json()
    statement = (
        "SELECT sum(billed_prompt_tokens) AS prompt, sum(billed_completion_tokens) AS completion"
        " FROM usage_ledger WHERE tenant_id = :tenant"
    )
    with ThreadPoolExecutor(1) as aside:  # Playwright's loop has this thread
        [ledger] = aside.submit(asyncio.run, stack.sql(statement, tenant=load.tenant)).result()
    wanted = (PROMPT * (QUICK + 2), SLOW_TOKENS + 4 * (QUICK + 1))
    for found in (total, usage):
        assert (found["prompt_tokens"], found["completion_tokens"]) == wanted
    assert (ledger.prompt, ledger.completion) == wanted

    page = ui.log_in(f"/tenants/{load.tenant}?range=24h")
    for name, value in (("Requests", QUICK + 3), ("Input tokens", wanted[0]), ("Output tokens", wanted[1])):
        shown = page.get_by_role("group", name=name, exact=True).get_by_role("paragraph").nth(1)
        expect(shown).to_have_text(f"{value:,}")
    chart = page.get_by_role("img", name=re.compile("^Requests,"))
    expect(chart).to_have_attribute("aria-label", re.compile(r"Served: 0 to \d"))
    page.get_by_role("button", name="Requests as a table").click()
    assert added(column(page, "Requests", "Served")) == QUICK + 2
    page.get_by_role("button", name="Not answered as a table").click()
    assert (
        sum(number(each) for each in column(page, "Not answered", "Refused by a limit") if each[0] != "u")
        == 1
    )

    page.goto(f"{ui.base_url}/admin/overview?range=24h")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=load.name))
    expect(row).to_be_visible()
    cells = [number(each) for each in row.get_by_role("cell").all_inner_texts()[:5]]
    assert cells == [QUICK + 3, 1, 0, *wanted]


def test_a_refused_request_says_by_which_limit_and_what_to_do(ui: Ui, load: Load) -> None:
    page = ui.log_in("/overview")
    field = page.get_by_label("Why was this request refused or slow?")
    field.fill("nothing like an id")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_text("There is no id of a request in this.")).to_be_visible()
    field.fill(f"x-request-id: {load.refused}")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page).to_have_url(re.compile(f"/tenants/{load.tenant}/requests/{load.refused}$"))
    refusal = page.get_by_role("region", name="What refused it")
    expect(refusal.get_by_role("group", name="By")).to_contain_text("key.requests_per_minute")
    expect(refusal.get_by_role("group", name="Limit")).to_contain_text("1")
    expect(refusal.get_by_role("group", name="Available")).to_contain_text("0")
    expect(refusal.get_by_text("It would have been let in after")).to_be_visible()
    refusal.get_by_role("link", name="the limits of this key").click()
    expect(page.get_by_role("heading", name="few")).to_be_visible()


def test_a_slow_request_is_found_by_its_id_and_shows_where_its_time_went(
    ui: Ui, admin: httpx.Client, load: Load
) -> None:
    root = f"/api/v1/tenants/{load.tenant}"
    story = admin.get(f"{root}/requests/{load.slow}").json()
    billed = admin.get(f"{root}/usage/{load.slow}/receipt").json()
    page = ui.log_in("/audit")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_placeholder("A page, tenant, adapter, key or request").fill(load.slow)
    expect(page.get_by_text(f"Request {load.slow}")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_text(story["explanation"])).to_be_visible()
    steps = page.get_by_role("region", name="Step by step").get_by_role("listitem")
    expect(steps).to_have_count(len(story["timeline"]))
    for step, shown in zip(story["timeline"], steps.all(), strict=True):
        expect(shown).to_contain_text(step["what"])
        expect(shown).to_contain_text("ms" if step["ms"] < 1000 else "s")
    expect(page.get_by_role("row", name="Output")).to_contain_text(f"{SLOW_TOKENS} tokens")
    expect(page.get_by_label("Receipt")).to_have_text(billed["receipt"])
    page.get_by_role("button", name="Verify the signature").click()
    expect(page.get_by_text("Verified: it is signed with a key of this tenant.")).to_be_visible()
    assert violations(page) == []


def test_the_list_of_requests_is_filtered_by_the_address(ui: Ui, load: Load) -> None:
    page = ui.log_in(f"/tenants/{load.tenant}/requests")
    links = page.get_by_role("link", name=re.compile("^[0-9a-f]{8}-"))
    expect(links).to_have_count(QUICK + 3)
    page.get_by_role("combobox", name="Outcome").click()
    page.get_by_role("option", name="refused").click()
    expect(links).to_have_text([load.refused])
    links.click()
    expect(page.get_by_role("heading", name=load.refused)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("combobox", name="Outcome")).to_have_value("refused")
    expect(links).to_have_text([load.refused])
    page.goto(f"{ui.base_url}/admin/tenants/{load.tenant}/requests?slow_ms=250")
    expect(links).to_have_text([load.slow])


def test_the_time_shown_is_the_address(ui: Ui, load: Load) -> None:
    page = ui.log_in("/overview")
    settled(page)

    def shown(name: str) -> None:
        expect(page.get_by_role("radio", name=name)).to_be_checked()
        expect(page.get_by_text("complete until")).to_be_visible()

    shown("1 h")
    page.get_by_text("24 h", exact=True).click()
    shown("24 h")
    page.get_by_text("7 days", exact=True).click()
    shown("7 days")
    page.go_back()
    shown("24 h")
    page.go_back()
    shown("1 h")
    page.go_forward()
    page.reload()
    shown("24 h")
    assert page.evaluate("new URL(location).searchParams.get('range')") == "24h"
    page.get_by_role("button", name="From, to…").click()
    page.get_by_label("From", exact=True).fill("2026-01-05T00:00")
    page.get_by_label("To", exact=True).fill("2026-01-04T00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_text("It ends before it begins.")).to_be_visible()
    page.get_by_label("To", exact=True).fill("2026-01-06T00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("group", name="Requests", exact=True)).to_contain_text("0")
    assert page.evaluate("new URL(location).searchParams.has('until')")
    expect(page.get_by_role("radio", name="24 h")).not_to_be_checked()


def test_a_page_that_nobody_sees_asks_for_nothing(ui: Ui, load: Load) -> None:
    page = ui.log_in("/log-in")
    page.clock.install()
    page.goto(f"{ui.base_url}/admin/overview")
    expect(page.get_by_text("complete until")).to_be_visible()
    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url) if "/api/" in request.url else None)
    hide = "Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => %s})"
    page.evaluate(f"{hide % repr('hidden')}; document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(60_000)
    assert calls == []
    page.evaluate(f"{hide % repr('visible')}; document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.run_for(60_000)
    for _ in range(100):
        if any("/api/v1/attention" in url for url in calls):
            break
        page.wait_for_timeout(50)
    assert any("/api/v1/attention" in url for url in calls)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_told_in_words_and_as_tables(ui: Ui, load: Load, scheme: str) -> None:
    page = ui.log_in("/log-in")
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark", reduced_motion="reduce")
    page.goto(f"{ui.base_url}/admin/tenants/{load.tenant}")
    settled(page)
    charts = page.get_by_role("figure").get_by_role("img")
    expect(charts).to_have_count(6)
    expect(page.get_by_role("img", name=re.compile("^Time to first token"))).to_have_attribute(
        "aria-label", re.compile(r"p50: .* ms, last .* unknown in \d+ of \d+ steps")
    )
    before = page.evaluate("document.documentElement.scrollHeight")
    for figure in page.get_by_role("figure").all():
        figure.get_by_role("button", name=re.compile("as a table$")).click()
    expect(charts).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollHeight") == before  # nothing jumps
    assert violations(page) == []
    page.get_by_role("button", name="Tokens per second as a chart").click()
    expect(page.get_by_role("img", name=re.compile("^Tokens per second"))).to_be_visible()


def test_what_needs_attention_leads_to_where_one_acts(ui: Ui, stack: Rig, admin: httpx.Client) -> None:
    made = admin.post("/api/v1/replicas", json={"url": "http://127.0.0.8:8100"}).json()
    admin.patch(f"/api/v1/replicas/{made['id']}", json={"state": "draining"}).raise_for_status()
    wanted = "http://127.0.0.8:8100 is being drained"
    until(lambda: wanted in admin.get("/api/v1/attention").text)
    page = ui.log_in("/")  # an operator's first page
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("region", name="Needs attention").get_by_role("link", name=wanted).click()
    expect(page.get_by_role("heading", name="Replicas")).to_be_visible()
    admin.delete(f"/api/v1/replicas/{made['id']}").raise_for_status()


def test_the_command_line_tells_the_same(stack: Rig, load: Load) -> None:
    access = ["--url", stack.base_url, "--admin-token", stack.token]
    told = CliRunner().invoke(app, ["attention", *access, "--json"])
    assert json.loads(told.stdout)["queue"]["places"] > 0
    told = CliRunner().invoke(app, ["requests", *access, "show", load.refused])
    assert "requests a minute" in told.stdout
