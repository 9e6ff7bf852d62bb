"""What is asked of a page that is looked at: that it has come to rest, that axe finds nothing serious, that
nothing is cut off, and that it gives what it promised when its data fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, Route, ViewportSize, expect

AXE = Path(__file__).resolve().parents[2] / "admin_ui" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
COLOURS = ["color-contrast", "link-in-text-block"]
SIZES = ["target-size", "scrollable-region-focusable"]
DESK: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
ZOOMED: ViewportSize = {"width": 320, "height": 256}
"""1280 by 1024 at 400 %."""
REQUEST_ID = "01a22c53-0000-7000-8000-000000000000"


def settled(page: Page) -> None:
    """Nothing loads, and nothing is on its way in or out."""
    expect(page.get_by_role("heading", level=1).or_(page.get_by_role("alert")).first).to_be_visible()
    expect(page.get_by_role("status", name=re.compile("^Loading"))).to_have_count(0)
    at_rest(page)


def at_rest(page: Page) -> None:
    """What turns for ever (a loader) is not waited for."""
    page.evaluate(
        "Promise.all(document.getAnimations()"
        ".filter((each) => each.effect?.getComputedTiming().endTime !== Infinity)"
        ".map((each) => each.finished.catch(() => {})))"
    )


def violations(page: Page, rules: list[str] | None = None, within: str = "html") -> list[str]:
    """Serious and critical ones, with what they stand on. `rules`: only these."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    only = {"type": "tag", "values": TAGS} if rules is None else {"type": "rule", "values": rules}
    script = "async ([within, only]) => (await axe.run(within, \
        {runOnly: only, resultTypes: ['violations']})).violations"
    found = page.evaluate(script, [within, only])
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{page.url}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in serious]


def too_wide(page: Page) -> list[str]:
    """What is wider than the window is scrolled inside, once the page has drawn itself anew. (Waiting by a
    function would evaluate text, which the page's policy refuses.)"""
    for _ in range(60):
        wide, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        if wide <= room:
            return []
        page.wait_for_timeout(50)
    return [f"{page.url} takes {wide} of {room} pixels"]


def in_every_look(page: Page) -> list[str]:
    """Both corners, and at 400 %."""
    found = in_both_corners(page, "html")
    _look(page, "light", ZOOMED)
    found += too_wide(page)
    _look(page, "light", DESK)
    return found


def in_both_corners(page: Page, within: str) -> list[str]:
    """Light and wide, dark and on a phone. What the page is made of, axe reads once: a theme can only change
    colours, and a phone besides what is large enough, and what scrolls."""
    found = violations(page, within=within)
    _look(page, "dark", PHONE)
    found += [*too_wide(page), *violations(page, COLOURS + SIZES, within)]
    _look(page, "light", DESK)
    return found


def _look(page: Page, scheme: str, size: ViewportSize) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size(size)
    expect(page.locator(f"html[data-mantine-color-scheme={scheme}]")).to_have_count(1)
    at_rest(page)


def route_pattern(route: str) -> re.Pattern[str]:
    """Addresses of `GET /api/v1/tenants/{tenant}/keys`."""
    path = re.sub(r"\\{\w+\\}", "[^/?]+", re.escape(route.partition(" ")[2]))
    return re.compile(rf"^https?://[^/]+(?:/[^?]*)?{path}(?:\?.*)?$")


def emptied(route: Route) -> None:
    """A list of nothing, whatever there is."""
    answer = route.fetch()
    body = answer.json()
    if isinstance(body, dict) and isinstance(body.get("data"), list):
        body |= {"data": [], "has_more": False, "next_cursor": None}
    route.fulfill(response=answer, json=body)


def refusing(status: int, detail: str = "Refused by the test.") -> Callable[[Route], None]:
    def refuse(route: Route) -> None:
        route.fulfill(
            status=status,
            body=json.dumps({"detail": detail, "status": status}),
            headers={"x-request-id": REQUEST_ID, "content-type": "application/problem+json"},
        )

    return refuse


def failed_with_an_id(page: Page) -> Locator:
    return page.get_by_role("alert").filter(has_text=REQUEST_ID)
