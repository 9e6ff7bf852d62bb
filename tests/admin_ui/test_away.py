"""The gateway is away, slow, or newer than the page: what was read stays, and what is typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from gateway.principal import Role
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import REQUEST_ID, failed_with_an_id, refusing
from tests.admin_ui.places import Furnished

AsRole = Callable[[Role], Ui]
REPLICAS = "**/api/v1/replicas*"
STEPS = 60
NEWER = "There is a newer version of this page"


def soon(page: Page, what: Locator, *, there: bool) -> None:
    """Within a minute of the page's clock, which goes on as fast as answers come."""
    for _ in range(STEPS):
        if (what.count() > 0) == there:
            return
        page.clock.run_for(1_000)
        page.wait_for_timeout(30)
    expect(what).to_have_count(1 if there else 0)


def test_what_was_read_stays_and_says_how_old_it_is(as_role: AsRole) -> None:
    """Whatever befalls the gateway; and the page goes on by itself."""
    page = as_role(Role.OPERATOR).open("/replicas", expected={500, 429}, clock=True)
    cell, stale = page.get_by_role("cell", name="ready"), page.get_by_role("status").filter(has_text="As of")
    expect(cell).to_be_visible()
    for befalls in (refusing(500), refusing(429)):
        page.route(REPLICAS, befalls)
        soon(page, stale, there=True)
        expect(cell).to_be_visible()
        page.unroute(REPLICAS)
        soon(page, stale, there=False)
    held: list[Route] = []
    page.route(REPLICAS, lambda route: held.extend([route]))
    page.clock.run_for(10_000)
    expect(cell).to_be_visible()
    expect(stale).to_have_count(0)
    assert held
    page.unroute(REPLICAS)  # lets go of what is held
    expect(cell).to_be_visible()


def test_a_gateway_that_is_gone_is_waited_for(as_role: AsRole) -> None:
    page = as_role(Role.OPERATOR).open("/replicas", expected={0}, clock=True)
    cell, stale = page.get_by_role("cell", name="ready"), page.get_by_role("status").filter(has_text="As of")
    expect(cell).to_be_visible()
    page.route("**/api/v1/**", lambda route: route.abort("connectionrefused"))
    soon(page, stale, there=True)
    expect(stale).to_contain_text("can't be reached")
    expect(cell).to_be_visible()
    page.unroute("**/api/v1/**")
    soon(page, stale, there=False)


def test_what_can_not_be_read_says_why_and_is_tried_again_when_asked(as_role: AsRole) -> None:
    page = as_role(Role.OPERATOR).open("/replicas", expected={503}, clock=True)
    page.route("**/api/v1/audit*", refusing(503, "PostgreSQL is away."))
    page.get_by_role("link", name="Audit").click()
    alert = failed_with_an_id(page)
    soon(page, alert, there=True)
    expect(alert).to_contain_text("PostgreSQL is away.")
    expect(alert).to_contain_text(REQUEST_ID)
    page.unroute("**/api/v1/audit*")
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table")).to_be_visible()


def test_a_page_of_before_a_release_loads_the_new_one_once(as_role: AsRole) -> None:
    """Parts of it are gone, as after two weeks."""
    ui = as_role(Role.OPERATOR)
    page = ui.open("/tenants", expected={404})
    expect(page.get_by_role("heading", name="Tenants")).to_be_visible()
    loads: list[Any] = []
    page.on("domcontentloaded", lambda _: loads.append(1))
    parts = re.compile(r"/assets/audit-[^/]+\.js")
    page.route(parts, lambda route: route.fulfill(status=404))
    with page.expect_event("domcontentloaded"):
        page.get_by_role("link", name="Audit").click()
    page.get_by_role("link", name="Audit").click()
    alert = page.get_by_role("alert").filter(has_text=NEWER)
    expect(alert).to_be_visible()
    assert len(loads) == 1
    page.unroute(parts)
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    ui.watched[-1].forgive(NEWER)


def test_what_is_typed_outlives_a_release(as_role: AsRole, furnished: Furnished) -> None:
    ui = as_role(Role.OPERATOR)
    page = ui.open(f"/tenants/{furnished.tenant}/limits", expected={404})
    page.get_by_label("Requests a minute").fill("77")
    page.evaluate("window.isOfBefore = true")
    page.route(re.compile(r"/assets/audit-[^/]+\.js"), lambda route: route.fulfill(status=404))
    with page.expect_response(re.compile(r"/assets/audit-[^/]+\.js")):
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Audit").hover()
    expect(page.get_by_label("Requests a minute")).to_have_value("77")
    page.wait_for_timeout(100)
    assert page.evaluate("window.isOfBefore")
    page.get_by_role("button", name="Discard").click()
    ui.watched[-1].forgive(NEWER)
