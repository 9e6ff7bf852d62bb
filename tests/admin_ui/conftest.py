"""The admin UI in a real browser before a real gateway: one running stack for all of them, a fake replica
behind it, an OpenID provider beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)
from pydantic import SecretStr

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from gateway.admin_auth.bootstrap import ensure_admin
from gateway.admin_ui.build import FOLDER
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.principal import Role
from tests.admin_ui.places import Furnished, furnish
from tests.admin_ui.programs import missing, need_chromium
from tests.oidc_provider import OidcServer
from tests.rig.rig import EMAIL, PASSWORD, Rig, Shape, running_rig

ACTION_MS = 20_000  # beside other work, too
expect.set_options(timeout=ACTION_MS)
TENANT = "house-tenant"
HARMLESS = ("data:", "about:")
CSP_REPORTS = """
window.motetViolations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.motetViolations.push(event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sample);
});
"""


@pytest.fixture(scope="session")
def provider() -> Iterator[OidcServer]:
    people = {
        "olga": {"email": "olga@example.com", "groups": ["platform"]},
        "dev": {"email": "dev@example.com", "groups": ["house-devs"]},
        "viewer": {"email": "viewer@example.com", "groups": ["house-viewers"]},
        "money": {"email": "money@example.com", "groups": ["house-money"]},
        "nobody": {"email": "nobody@example.com", "groups": []},
    }
    server = OidcServer(people)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def stack(demo_model_dir: Path, provider: OidcServer) -> Iterator[Rig]:
    if not (FOLDER / "index.html").exists():
        missing("the admin UI is not built: run `make ui`")
    roles = {
        "platform": "operator",
        "house-devs": f"developer@{TENANT}",
        "house-viewers": f"viewer@{TENANT}",
        "house-money": f"billing@{TENANT}",
    }
    settings = {"OIDC_PROVIDERS": json.dumps([provider.settings(roles=roles)]), "BASE_DIGESTS": ""}
    with running_rig(demo_model_dir, Shape(workers=1, settings=settings)) as rig:
        provider.redirect_uris.add(f"{rig.base_url}/api/v1/session/oidc/house/callback")
        yield rig


@pytest.fixture(scope="session")
def admin(stack: Rig) -> Iterator[httpx.Client]:
    with stack.admin() as client:
        yield client


@pytest.fixture(scope="session")
def tenant(admin: httpx.Client) -> str:
    """The id of one whose roles the provider's groups name."""
    return str(admin.post("/api/v1/tenants", json={"name": TENANT}).raise_for_status().json()["id"])


@pytest.fixture
def new_tenant(admin: httpx.Client) -> Callable[..., dict[str, Any]]:
    def make(**fields: Any) -> dict[str, Any]:
        wanted = {"name": f"ui-{uuid4().hex[:10]}", **fields}
        made: dict[str, Any] = admin.post("/api/v1/tenants", json=wanted).raise_for_status().json()
        return made

    return make


@pytest.fixture(scope="session")
def base(stack: Rig, demo_model_dir: Path) -> BaseSpec:
    return BaseSpec.from_dir(demo_model_dir, stack.base_name)


@pytest.fixture
def folder(base: BaseSpec, tmp_path: Path) -> Path:
    """A small one that a replica takes."""
    return write_adapter(
        tmp_path / "pirate", base, Recipe(3, rank=2, layers=[0], targets=["q_proj"], std=0.2)
    )


@pytest.fixture
def large(base: BaseSpec, tmp_path: Path) -> Path:
    """Of three chunks."""
    return write_adapter(tmp_path / "large", base, Recipe(4, rank=32, std=0.05))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while it is there, its event loop runs in this thread, and whatever comes after
    these tests could begin none of its own."""
    program = need_chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Watched:
    """A page whose every complaint counts: the console's, the policy's, requests to elsewhere."""

    page: Page
    origins: set[str]
    expected: set[int] = field(default_factory=set)  # statuses that a test causes on purpose; 0: no answer
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if any(f"status of {status}" in message.text for status in self.expected):
            return
        if 0 in self.expected and "net::ERR_" in message.text:
            return
        self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not any(request.url.startswith(origin) for origin in self.origins):
            self.complaints.append(f"foreign: {request.url}")

    def forgive(self, text: str) -> None:
        """What the test caused on purpose."""
        self.complaints = [each for each in self.complaints if text not in each]

    def found(self) -> list[str]:
        violations: list[str] = []
        if not self.page.is_closed():
            violations = self.page.evaluate("window.motetViolations ?? []")
        return [*self.complaints, *(f"policy: {each}" for each in violations)]


@dataclass
class Ui:
    """What a test drives: pages of one browser profile."""

    base_url: str
    context: BrowserContext
    origins: set[str]
    watched: list[Watched] = field(default_factory=list)

    def open(self, path: str = "/", *, expected: set[int] | None = None, clock: bool = False) -> Page:
        """`clock`: the page's is the test's to move."""
        page = self.context.new_page()
        page.set_default_timeout(ACTION_MS)
        watched = Watched(page, self.origins, expected or set())
        watched.watch()
        self.watched.append(watched)
        if clock:
            page.clock.install()
        page.goto(f"{self.base_url}/admin{path}")
        return page

    def log_in(self, path: str = "/", *, expected: set[int] | None = None, clock: bool = False) -> Page:
        """As the operator; how that looks, other tests say."""
        enter(self.context, self.base_url)
        return self.open(path, expected=expected, clock=clock)

    def log_in_at_provider(self, person: str, path: str = "/") -> Page:
        page = self.open(path, expected={401})
        page.get_by_role("link", name="Log in with House").click()
        page.get_by_role("button", name=person, exact=True).click()
        return page


def enter(context: BrowserContext, base_url: str, email: str = EMAIL, password: str = PASSWORD) -> None:
    answer = context.request.post(f"{base_url}/api/v1/session", data={"email": email, "password": password})
    assert answer.status == 201, answer.text()


def add_operator(stack: Rig, email: str, password: str = PASSWORD, *, must_change: bool = False) -> None:
    async def make() -> None:
        db = Database(stack.database.system, stack.database.system)
        await ensure_admin(db, Peppers(SecretStr("p" * 32)), email, password, must_change=must_change)
        await db.close()

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has this one's event loop
        thread.submit(asyncio.run, make()).result()


def forget_attempts(redis_url: str) -> None:
    """All tests come from one address, which has so many in five minutes."""
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter("{motet-log-in}:*"):
            client.delete(key)


def fill_log_in(page: Page, email: str = EMAIL, password: str = PASSWORD) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in", exact=True).click()


@pytest.fixture
def ui(stack: Rig, browser: Browser, provider: OidcServer, tenant: str) -> Iterator[Ui]:
    """With every complaint of every page at the end of the test."""
    forget_attempts(stack.redis_url)
    context = new_context(browser)
    opened = Ui(stack.base_url, context, {stack.base_url, provider.issuer, *HARMLESS})
    yield opened
    found = [complaint for watched in opened.watched for complaint in watched.found()]
    context.close()
    assert found == []


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.add_init_script(CSP_REPORTS)
    return context


@pytest.fixture(scope="session")
def furnished(admin: httpx.Client) -> Furnished:
    return furnish(admin)


@pytest.fixture(scope="module")
def profiles(
    stack: Rig, browser: Browser, admin: httpx.Client, furnished: Furnished
) -> Iterator[Callable[[Role], BrowserContext]]:
    """A browser profile for each role, logged in once: members of the furnished tenant, and an operator whom
    no other test logs out."""
    opened: dict[Role, BrowserContext] = {}

    def profile(role: Role) -> BrowserContext:
        if role not in opened:
            forget_attempts(stack.redis_url)
            email = f"{role.value.replace('_', '-')}-{uuid4().hex[:6]}@every-page.example"
            if role is Role.OPERATOR:
                add_operator(stack, email)
            else:
                members = f"/api/v1/tenants/{furnished.tenant}/members"
                made = admin.post(members, json={"email": email, "role": role}).raise_for_status().json()
                chosen = {"password": PASSWORD}
                admin.put(f"{members}/{made['id']}/password", json=chosen).raise_for_status()
            opened[role] = new_context(browser, reduced_motion="reduce")
            enter(opened[role], stack.base_url, email)
        return opened[role]

    yield profile
    for context in opened.values():
        context.close()


@pytest.fixture
def as_role(stack: Rig, profiles: Callable[[Role], BrowserContext]) -> Iterator[Callable[[Role], Ui]]:
    """Like `ui`, but logged in already."""
    used: list[Ui] = []

    def enter_as(role: Role) -> Ui:
        used.append(Ui(stack.base_url, profiles(role), {stack.base_url, *HARMLESS}))
        return used[-1]

    yield enter_as
    watched = [each for ui in used for each in ui.watched]
    found = [complaint for each in watched for complaint in each.found()]
    for each in watched:
        each.page.close()
    assert found == []
