"""Every page of `places.py`: in each state, both themes, on a phone and a desk, by keyboard, and hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, Response, expect

from gateway.principal import Role
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import (
    DESK,
    at_rest,
    emptied,
    failed_with_an_id,
    in_both_corners,
    in_every_look,
    refusing,
    route_pattern,
    settled,
    violations,
)
from tests.admin_ui.places import PLACES, Furnished, Place

AsRole = Callable[[Role], Ui]
HIDDEN = """() => {
  Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => 'hidden'});
  Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""
BEFORE_FOCUS = """() => {
  const one = (each) => { const s = getComputedStyle(each);
    return [s.outlineStyle, s.boxShadow, s.borderTopColor, s.backgroundColor].join(); };
  const around = (each) =>
    [each, each.nextElementSibling, each.parentElement, each.parentElement.parentElement];
  const look = (each) => around(each).filter(Boolean).map(one).join();
  const main = document.getElementById('main');
  const all = main.querySelectorAll('a[href], button, input, select, textarea, [tabindex]');
  window.walk = {look, before: new Map(), reached: new Set()};
  window.walk.controls = [...all].filter((one) =>
    one.tabIndex >= 0 && !one.disabled && one.checkVisibility({visibilityProperty: true})
    && getComputedStyle(one).pointerEvents !== 'none');
  for (const one of window.walk.controls) window.walk.before.set(one, look(one));
  main.focus();
  return window.walk.controls.length;
}"""
AT_FOCUS = """() => {
  const {look, before, reached} = window.walk;
  const one = document.activeElement;
  if (!document.getElementById('main').contains(one)) return null;
  reached.add(one);
  const seen = [];
  const html = one.outerHTML.slice(0, 160);
  if (before.get(one) === look(one))
    seen.push('looks the same with focus: ' + html);
  const drawn = one.role === 'switch' ? one.parentElement.querySelector('[class*=track]') : one;
  const {left, top, width, height} = drawn.getBoundingClientRect();
  const at = document.elementFromPoint(left + Math.min(width, 40) / 2, top + height / 2);
  const shown = at && (drawn.contains(at) || at.contains(drawn));
  if (width > 1 && !shown) seen.push('hidden at its focus: ' + html);
  return seen;
}"""
NOT_REACHED = """() => window.walk.controls
  .filter((one) => !window.walk.reached.has(one) && one.type !== 'radio')
  .map((one) => 'not reached: ' + one.outerHTML.slice(0, 160))"""


@contextmanager
def answered(page: Page, place: Place, how: object) -> Iterator[None]:
    """The route that the page reads is answered otherwise."""
    pattern = route_pattern(place.reads)
    page.route(pattern, how)  # type: ignore[arg-type]
    yield
    page.unroute(pattern)


def lists(response: Response) -> bool:
    found = response.json()
    return isinstance(found, dict) and isinstance(found.get("data"), list)


def test_every_page_is_accessible_in_every_state(as_role: AsRole, furnished: Furnished) -> None:
    """Loaded, with each dialog open, empty, and failed: that shows the request's id."""
    ui = as_role(Role.OPERATOR)
    page = ui.open("/password", expected={400})
    page.set_viewport_size(DESK)
    found: list[str] = []
    heard: list[Response] = []
    seen_failed = False
    page.on("response", lambda response: heard.extend([response]))  # a method of a list takes no mark
    for place in PLACES:
        url = f"{ui.base_url}/admin{furnished.fill(place.path)}"
        reads = place.reads.startswith("GET")
        heard.clear()
        page.goto(url)
        settled(page)
        pattern = route_pattern(place.reads)
        has_list = reads and any(pattern.match(each.url) and each.ok and lists(each) for each in heard)
        found += in_every_look(page)
        for opener in place.opens:
            found += with_dialog(page, furnished.fill(opener))
        if has_list:
            with answered(page, place, emptied):
                page.goto(url)
                settled(page)
                found += in_both_corners(page, "main")
        if reads:
            with answered(page, place, refusing(400)):
                page.goto(url)
                expect(failed_with_an_id(page).first, place.name).to_be_visible()
                found += in_both_corners(page, "main") if not seen_failed else []  # one part draws them all
                seen_failed = True
    assert not found, "\n".join(found)


MOVING = """document.getAnimations().filter((each) =>
  each.playState === 'running' && each.effect?.getComputedTiming().duration > 1).length"""


def with_dialog(page: Page, opener: str) -> list[str]:
    page.get_by_role("button", name=opener).first.click()
    dialog = page.get_by_role("dialog").first
    expect(dialog).to_be_visible()
    expect(dialog.locator("[data-loading]")).to_have_count(0)  # what it counts turns for as long as it does
    at_rest(page)
    running = page.evaluate(MOVING)
    moving = [f"{page.url}: {opener} moves, though less motion is asked for"] if running else []
    found = in_both_corners(page, "[role=dialog]")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    return [*moving, *found]


def test_what_stands_outside_of_the_door_is_accessible(ui: Ui) -> None:
    page = ui.open("/log-in", expected={401})
    settled(page)
    found = in_every_look(page)
    page.close()
    page = ui.log_in("/nowhere", expected={404})
    expect(page.get_by_role("alert")).to_be_visible()
    assert [*found, *violations(page)] == []


def test_every_control_is_reached_by_keyboard_and_seen_there(as_role: AsRole, furnished: Furnished) -> None:
    ui = as_role(Role.OPERATOR)
    page = ui.open("/password")
    found: list[str] = []
    for place in PLACES:
        page.goto(f"{ui.base_url}/admin{furnished.fill(place.path)}")
        settled(page)
        steps = 2 * page.evaluate(BEFORE_FOCUS) + 10  # a date has a stop for each part
        for _ in range(steps):
            page.keyboard.press("Tab")
            seen = page.evaluate(AT_FOCUS)
            if seen:  # before the frame that draws it
                page.wait_for_timeout(60)
                seen = page.evaluate(AT_FOCUS)
            if seen is None:
                break
            found += [f"{place.name}: {each}" for each in seen]
        found += [f"{place.name}: {each}" for each in page.evaluate(NOT_REACHED)]
    assert not found, "\n".join(found)


def test_a_page_that_nobody_sees_asks_for_nothing(as_role: AsRole, furnished: Furnished) -> None:
    """For a minute of its clock."""
    ui = as_role(Role.OPERATOR)
    page = ui.open("/password", clock=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in PLACES:
        page.goto(f"{ui.base_url}/admin{furnished.fill(place.path)}")
        settled(page)
        page.evaluate(HIDDEN)
        asked.clear()
        page.clock.run_for(60_000)
        page.wait_for_timeout(20)
        assert asked == [], place.name
