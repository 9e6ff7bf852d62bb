"""Every role at every page: what it may open has a way in, what it may not has none, and no control that it
sees is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Response, Route, expect

from gateway.principal import Role
from gateway.roles import ROLES
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import refusing, route_pattern, settled
from tests.admin_ui.places import BY_NAME, PLACES, Furnished

AsRole = Callable[[Role], Ui]
Call = tuple[str, str]
"""A method, and a route as the table of roles has it."""
Pressed = dict[tuple[str, str], set[Call]]
"""By page and control, what it asked the API to change."""

CHANGES = {call: route_pattern(" ".join(call)) for call in ROLES if call[0] not in ("GET", "HEAD")}
HARMLESS = re.compile(r"^(Show the API call|.* as a table|Copy.*|First page|Next page|Close|Discard)$")
MOST = 16
"""Controls of one page; rows after the first have what the first has."""
CONTROLS = """(most) => [...document.querySelectorAll('#main button')]
  .filter((one) => !one.disabled && one.checkVisibility() && one.getAttribute('role') !== 'tab'
    && !one.closest('tbody tr:not(:first-child)'))
  .map((one) => one.getAttribute('aria-label') ?? one.innerText.trim())
  .filter((name, at, all) => name !== '' && all.indexOf(name) === at).slice(0, most)"""
DRAWN = """() => [...document.querySelectorAll('button, input, [role=dialog], [role=alert]')]
  .map((one) => [one.innerText, one.value, one.disabled, one.getAttribute('aria-expanded')].join()).join()"""
"""What a press can change of a page, but for figures that change by themselves."""


@pytest.fixture(scope="module")
def pressed() -> Pressed:
    """What controls of pages do, as far as it is known: each is pressed once."""
    return {}


@pytest.mark.parametrize("role", list(Role))
def test_a_role_finds_its_pages_and_nothing_that_is_refused(
    as_role: AsRole, furnished: Furnished, pressed: Pressed, role: Role
) -> None:
    ui = as_role(role)
    page = ui.open("/", expected={409})
    refused: list[str] = []

    def note(response: Response) -> None:
        if response.status in (401, 403):
            refused.append(f"{page.url}: {response.request.method} {response.url}: {response.status}")

    page.on("response", note)
    settled(page)
    _check_ways(page, ui, furnished, role, "")
    for place in PLACES:
        if not place.allows(role):
            continue
        page.goto(f"{ui.base_url}/admin{furnished.fill(place.path)}")
        settled(page)
        for control in _controls(page):
            if (place.name, control) not in pressed:
                above = place.way and pressed.get((place.way[0], control))  # in the frame of both
                pressed[place.name, control] = above or _press(page, control)
            for call in pressed[place.name, control]:
                assert role in ROLES[call], f"{role} sees '{control}' on {page.url}, which asks {call}"
        _check_ways(page, ui, furnished, role, place.name)
    assert refused == []


def _check_ways(page: Page, ui: Ui, furnished: Furnished, role: Role, start: str) -> None:
    """To the pages that one gets to from here."""
    for place in PLACES:
        if len(place.way) != 2 or place.way[0] != start:
            continue
        target = _named(page, start, furnished.fill(place.way[1]))
        if not place.allows(role):
            expect(target).to_have_count(0)
        else:
            _leads_to(target.first, page, f"{ui.base_url}/admin{furnished.fill(place.path)}")


def _named(page: Page, start: str, name: str) -> Locator:
    if start == "":
        return page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True)
    main = page.get_by_role("main")
    return main.get_by_role("link", name=name, exact=True).or_(main.get_by_role("tab", name=name, exact=True))


def _leads_to(target: Locator, page: Page, url: str) -> None:
    expect(target).to_be_visible()
    href = target.get_attribute("href")
    if href is None:  # a tab
        before = page.url
        target.click()
        expect(page).to_have_url(url)
        page.goto(before)
        settled(page)
    else:
        assert url.endswith(href), f"{page.url}: {href} is not {url}"


def _controls(page: Page) -> list[str]:
    found: list[str] = page.evaluate(CONTROLS, MOST)
    return [name for name in found if not HARMLESS.match(name)]


def _press(page: Page, control: str) -> set[Call]:
    """What is asked for when it is pressed, and the dialog that it opens is sent: nothing of it is done, and
    a double click asks once."""
    with _Held(page) as held:
        page.get_by_role("main").get_by_role("button", name=control, exact=True).first.dblclick()
        dialog = page.get_by_role("dialog")
        _wait(page, lambda: bool(held) or dialog.count() > 0)
        if not held and dialog.count():
            _fill(dialog.first)
            submit = dialog.first.locator("button[type=submit]:enabled")
            if submit.count():
                submit.last.dblclick()
                _wait(page, lambda: bool(held))
        page.wait_for_timeout(20)
        calls = [_call(route) for route in held]
        assert len(calls) == len(set(calls)), f"{page.url}: a double click on '{control}' asks twice: {calls}"
        for route in held:
            refusing(409)(route)
        held.clear()
    return set(calls)


def _wait(page: Page, until: Callable[[], bool]) -> bool:
    """As long as a page takes to answer to a press."""
    for _ in range(10):
        if until():
            return True
        page.wait_for_timeout(30)
    return False


def _fill(dialog: Locator) -> None:
    """With what is good enough to be sent."""
    for field in dialog.locator("input[type=text]:visible, input:not([type]):visible").all():
        label = field.evaluate("(one) => one.labels?.[0]?.innerText ?? ''")
        typed = re.match(r"Type (.+) to go on", label)
        if typed is not None:
            field.fill(typed[1])
        elif field.evaluate("(one) => one.required && one.value === ''"):
            field.fill("a-name")


class _Held:
    """Requests that would change something wait, until the page was seen to ask only once."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._url = page.url
        self._drawn = page.evaluate(DRAWN)
        self._held: list[Route] = []

    def __enter__(self) -> list[Route]:
        self._page.route("**/api/v1/**", self._hold)
        return self._held

    def __exit__(self, *_: object) -> None:
        """The page is as it was before."""
        for route in self._held:
            route.abort()
        self._page.unroute("**/api/v1/**", self._hold)
        self._page.keyboard.press("Escape")
        if not _wait(self._page, self._is_as_before):
            self._page.goto(self._url)
            settled(self._page)

    def _is_as_before(self) -> bool:
        return self._page.url == self._url and bool(self._page.evaluate(DRAWN) == self._drawn)

    def _hold(self, route: Route) -> None:
        if route.request.method in ("GET", "HEAD"):
            route.fallback()
        else:
            self._held.append(route)


def _call(route: Route) -> Call:
    asked = route.request
    found = [call for call, path in CHANGES.items() if call[0] == asked.method and path.match(asked.url)]
    assert found, f"{asked.method} {asked.url} is no route of the table"
    return found[0]


def test_each_page_is_reached_from_another() -> None:
    assert {place.way[0] for place in PLACES if place.way} - {""} <= set(BY_NAME)
    assert len(BY_NAME) == len(PLACES)


def test_the_account_menu_leads_to_the_password(as_role: AsRole) -> None:
    page = as_role(Role.VIEWER).open("/")
    page.get_by_role("button", name=re.compile("^Account")).click()
    page.get_by_role("menuitem", name="Change password…").click()
    expect(page.get_by_role("heading", name="Change password")).to_be_visible()
