"""`make screenshots`: every page of `places.py`, light and dark, on a desk and on a phone, over the real demo
platform after a load. What `docs/screenshots/.gitignore` names is kept; all of it is to be looked at."""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Error, Page, sync_playwright

from deploy.local.models import DEMO_MODEL, import_model
from tests.admin_ui.looking import DESK, PHONE, at_rest, settled
from tests.admin_ui.places import PLACES, Furnished, Place
from tests.admin_ui.programs import NotInstalled, chromium
from tests.admin_ui.showcase import show
from tests.running_platform import RunningPlatform

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "screenshots"
SIZES: Final = {1440: DESK, 390: PHONE}
SCHEMES: Final = ("light", "dark")
KEPT: Final = (("light", 1440), ("dark", 390))
"""Of each page, what stands in the docs."""
MOST_KEPT_BYTES: Final = 5 * 1024 * 1024
TALLEST: Final = 2_000
QUALITY: Final = 78
QUIET_MS: Final = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to")
    options = parser.parse_args()
    wanted = {name for name in options.only.split(",") if name}
    places = [place for place in PLACES if not wanted or place.name in wanted]
    try:
        program = chromium()
    except NotInstalled as error:
        print(f"motet: {error}", file=sys.stderr)
        return 1
    given = os.environ.get("MOTET_TEST_MODEL")
    model = Path(given) if given else import_model(ROOT / "var" / "cache" / DEMO_MODEL)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="motet-screenshots-", ignore_cleanup_errors=True) as home:
        platform = RunningPlatform(Path(home), model)
        try:
            print(f"The platform is ready after {platform.start():.0f} s; now the load …", flush=True)
            shown = show(platform)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                failed = list(take(browser, platform, shown, places, options.folder))
                browser.close()
        finally:
            platform.stop()
    if not wanted:
        write_index(options.folder)
    kept = sum(path.stat().st_size for path in kept_files(options.folder))
    print(f"{len(kept_files(options.folder))} pictures to keep, {kept / 2**20:.1f} MiB", flush=True)
    for line in failed:
        print(f"motet: {line}", file=sys.stderr)
    return 1 if failed or kept > MOST_KEPT_BYTES else 0


def take(
    browser: Browser, platform: RunningPlatform, shown: Furnished, places: list[Place], folder: Path
) -> Iterator[str]:
    """Writes the pictures; what could not be taken is told, and the others go on."""
    demo = platform.demo()
    root = demo["base_url"].removesuffix("/v1")
    context = browser.new_context(viewport=DESK, reduced_motion="reduce", device_scale_factor=1)
    page = context.new_page()
    page.goto(f"{root}/admin/log-in")
    settled(page)
    yield from _pictures(page, folder, "log-in")
    login = {"email": demo["admin"]["email"], "password": demo["admin"]["password"]}
    assert context.request.post(f"{root}/api/v1/session", data=login).status == 201
    for place in places:
        try:
            page.goto(f"{root}/admin{shown.fill(place.path)}")
            settled(page)
            yield from _pictures(page, folder, place.name)
            for opener in place.opens:
                yield from _dialog(page, folder, place, shown.fill(opener))
        except (Error, AssertionError) as error:
            yield f"{place.name}: {error}"
    context.close()


def _pictures(page: Page, folder: Path, name: str) -> Iterator[str]:
    for width, size in SIZES.items():
        page.set_viewport_size(size)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            at_rest(page)
            page.wait_for_timeout(QUIET_MS)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                yield f"{name} is {wide} pixels wide of {width}"
            _picture(page, folder / f"{name}-{scheme}-{width}.webp")
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def _dialog(page: Page, folder: Path, place: Place, opener: str) -> Iterator[str]:
    button = page.get_by_role("button", name=opener).first
    if button.count() == 0:
        yield f"{place.name} has no '{opener}'"
        return
    button.click()
    page.wait_for_timeout(QUIET_MS)
    slug = "".join(letter if letter.isalnum() else "-" for letter in opener.lower()).strip("-")
    _picture(page, folder / f"{place.name}-{slug}-dialog.webp")
    page.keyboard.press("Escape")


def _picture(page: Page, file: Path) -> None:
    """The whole page, up to a height at which nobody reads on."""
    width, height = page.evaluate("[window.innerWidth, document.documentElement.scrollHeight]")
    session = page.context.new_cdp_session(page)
    taken = session.send(
        "Page.captureScreenshot",
        {
            "format": "webp",
            "quality": QUALITY,
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": min(height, TALLEST), "scale": 1},
        },
    )
    session.detach()
    file.write_bytes(base64.b64decode(taken["data"]))


def kept_files(folder: Path) -> list[Path]:
    names = ["log-in", *(place.name for place in PLACES)]
    files = [folder / f"{name}-{scheme}-{width}.webp" for name in names for scheme, width in KEPT]
    return [file for file in files if file.exists()]


def write_index(folder: Path) -> None:
    lines = [
        "# The admin UI in pictures",
        "",
        "Made by `make screenshots` over the demo platform, after a load.",
        "",
    ]
    for name in ("log-in", *(place.name for place in PLACES)):
        desk, phone = (f"{name}-{scheme}-{width}.webp" for scheme, width in KEPT)
        if (folder / desk).exists():
            lines += [f"## {name}", f'<img src="{desk}" width="720"> <img src="{phone}" width="195">', ""]
    (folder / "README.md").write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
