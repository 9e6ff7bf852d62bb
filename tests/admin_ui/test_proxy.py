"""Behind nginx as people have it: TLS, a path of its own, an inner port, bodies of one megabyte at most."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Response, expect
from typer.testing import CliRunner

from deploy.cli import build_app
from deploy.local.children import Child, ChildSpec, tail
from deploy.local.services import free_port
from tests.admin_ui.bringing import WEIGHTS, Maker, choose
from tests.admin_ui.conftest import HARMLESS, Ui, fill_log_in, forget_attempts, new_context
from tests.admin_ui.places import Furnished
from tests.admin_ui.programs import need
from tests.admin_ui.test_live import stream, until
from tests.gateway.inference.test_reverse_proxy import make_certificate, nginx
from tests.oidc_provider import OidcServer
from tests.rig.rig import Rig

PREFIX = "/x/motet"
LIMIT_BYTES = 1024 * 1024
READY_S = 240.0
HEARD_S = 10.0  # beside other work; a proxy that buffers tells after a minute
TUS = {"tus-resumable": "1.0.0"}


@dataclass(frozen=True)
class Proxied:
    """`port`, `settings`: of the gateway behind it."""

    url: str
    port: int
    settings: dict[str, str]
    redirects: list[str]


@pytest.fixture(scope="module")
def proxied(stack: Rig, provider: OidcServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """One more gateway of the stack, which is told the outer URL, and nginx with our own file before it."""
    program = need("nginx")
    folder = tmp_path_factory.mktemp("proxied")
    inside, outside = free_port(), free_port()
    url = f"https://127.0.0.1:{outside}{PREFIX}"
    assert stack.plan is not None
    spec = replace(stack.plan, port=inside, workers=1).gateway()
    settings = {
        **spec.env,
        **{f"MOTET_{name}": value for name, value in stack.settings.items()},
        "MOTET_HOME": str(folder / "home"),
        "MOTET_JOURNAL_DIR": str(folder / "journal"),
        "MOTET_PUBLIC_URL": url + "/",
    }
    provider.redirect_uris.add(f"{url}/api/v1/session/oidc/house/callback")
    make_certificate(folder)
    command = [program, *nginx(folder, outside, inside)[1:]]
    config = folder / "nginx.conf"
    text = config.read_text()
    for ours, tests in (
        ("client_max_body_size 0;", f"client_max_body_size {LIMIT_BYTES};"),
        ("location / {", f"location {PREFIX}/ {{"),
        ("proxy_pass http://motet;", "proxy_pass http://motet/;"),
    ):
        assert ours in text
        text = text.replace(ours, tests)
    config.write_text(text)
    children = [
        Child(replace(spec, env=settings, log=folder / "gateway.log")),
        Child(ChildSpec("nginx", command, folder / "nginx.log")),
    ]
    try:
        _wait_until_ready(f"{url}/readyz", folder, children)
        yield Proxied(url, inside, settings, [])
    finally:
        for child in children:
            child.stop(10)


def _wait_until_ready(url: str, folder: Path, children: list[Child]) -> None:
    deadline = time.monotonic() + READY_S
    with httpx.Client(verify=False, timeout=10) as client:
        while True:
            try:
                if client.get(url).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            said = "".join(tail(folder / name, 15) for name in ("gateway.log", "nginx.log", "error.log"))
            assert all(child.returncode is None for child in children), said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)


@pytest.fixture
def outer(stack: Rig, browser: Browser, provider: OidcServer, proxied: Proxied) -> Iterator[Ui]:
    """A browser that may ask for nothing outside of the path, but for the provider's pages."""
    forget_attempts(stack.redis_url)
    context = new_context(browser, ignore_https_errors=True)
    ui = Ui(proxied.url, context, {f"{proxied.url}/", provider.issuer, *HARMLESS})

    def note(response: Response) -> None:
        if 300 <= response.status < 400 and not response.url.startswith(provider.issuer):
            proxied.redirects.append(response.headers["location"])

    context.on("response", note)
    yield ui
    found = [complaint for watched in ui.watched for complaint in watched.found()]
    context.close()
    assert found == []


def test_people_get_in_and_to_where_they_wanted_to_go(
    outer: Ui, proxied: Proxied, provider: OidcServer, furnished: Furnished, tenant: str
) -> None:
    page = outer.open(f"/tenants/{furnished.tenant}/keys?state=live", expected={401})
    fill_log_in(page)
    expect(page.get_by_role("link", name=furnished.key_name)).to_be_visible()
    assert page.url == f"{proxied.url}/admin/tenants/{furnished.tenant}/keys?state=live"
    cookies = {cookie["name"]: cookie for cookie in outer.context.cookies()}
    assert cookies["motet_session"]["secure"]
    page.reload()
    expect(page.get_by_role("tab", name="Keys")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Limits").click()
    page.get_by_label("Requests a minute").fill("600")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    _leave(page)

    page.goto(proxied.url + "/admin")  # the server's own redirect, then that of the page
    expect(page).to_have_url(re.compile(rf"^{re.escape(proxied.url)}/admin/log-in"))
    page.get_by_role("link", name="Log in with House").click()
    page.get_by_role("button", name="olga").click()
    expect(page.get_by_role("button", name=re.compile("^Account"))).to_be_visible()
    assert page.url.startswith(f"{proxied.url}/admin/")
    leading_out = [place for place in proxied.redirects if re.match(r"[a-z]+:|//", place)]
    assert all(place.startswith(f"{provider.issuer}/authorize?") for place in leading_out)
    assert len(proxied.redirects) > len(leading_out) > 0


def _leave(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Account")).click()
    page.get_by_role("menuitem", name="Log out", exact=True).click()
    expect(page.get_by_role("heading", name="Log in to Motet")).to_be_visible()


def test_a_page_without_its_scripts_says_whose_fault_it_may_be(browser: Browser, proxied: Proxied) -> None:
    """Opened past the proxy, where its path is not."""
    context = new_context(browser)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{proxied.port}/admin/")
    hint = page.get_by_text("MOTET_PUBLIC_URL has to be the one in your browser")
    expect(hint).to_be_hidden()
    page.evaluate("document.getAnimations().forEach((each) => each.finish())")
    expect(hint).to_be_visible()
    context.close()


def test_assets_are_kept_for_ever_and_missing_ones_are_no_page(proxied: Proxied) -> None:
    with httpx.Client(verify=False) as client:
        page = client.get(f"{proxied.url}/admin/x/y", headers={"accept": "text/html"})
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert named
        assert all(name.startswith(f"{PREFIX}/admin/assets/") for name in named)
        origin = proxied.url.removesuffix(PREFIX)
        for name in named:
            asset = client.get(origin + name)
            assert (asset.status_code, "immutable" in asset.headers["cache-control"]) == (200, True)
        gone = client.get(origin + named[0] + ".js", headers={"accept": "text/html"})
        assert gone.status_code == 404
        assert "json" in gone.headers["content-type"]


def test_uploads_go_in_pieces_through_a_limit_on_bodies(
    proxied: Proxied, stack: Rig, furnished: Furnished
) -> None:
    """A piece that is too large is the proxy's to refuse, and costs nothing of what came before."""
    data = bytes(range(256)) * 8 * 1024
    assert len(data) > LIMIT_BYTES
    told = f"filename {base64.b64encode(b'adapter_model.safetensors').decode()}"
    with httpx.Client(verify=False, headers=stack.admin_headers, timeout=60) as client:
        uploads = f"{proxied.url}/api/v1/tenants/{furnished.tenant}/uploads"
        begun = client.post(
            uploads, headers={**TUS, "upload-length": str(len(data)), "upload-metadata": told}
        )
        assert begun.status_code == 201, begun.text
        place = begun.url.join(begun.headers["location"])
        assert str(place).startswith(uploads)
        headers = {**TUS, "content-type": "application/offset+octet-stream"}
        refused = client.patch(place, content=data, headers={**headers, "upload-offset": "0"})
        assert refused.status_code == 413
        piece = 600 * 1024
        for start in range(0, len(data), piece):
            asked = {**headers, "upload-offset": str(start)}
            sent = client.patch(place, content=data[start : start + piece], headers=asked)
            assert sent.status_code == 204, sent.text
        assert client.get(place).json()["finished"] is True
        assert client.delete(place, headers=TUS).status_code == 204


def test_a_page_uploads_in_pieces_that_the_proxy_takes(outer: Ui, new_tenant: Maker, large: Path) -> None:
    made, size = new_tenant(), (large / WEIGHTS).stat().st_size
    page = outer.open(f"/tenants/{made['id']}/upload", expected={401, 413})
    fill_log_in(page)
    choose(page, large)
    pieces: list[int] = []
    page.on("response", lambda each: pieces.append(each.status) if each.request.method == "PATCH" else None)
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("large@1 is ready")).to_be_visible(timeout=60_000)
    assert 0 < pieces.count(413) < 8  # a half each time
    assert pieces.count(204) > size // LIMIT_BYTES


def test_changes_are_heard_as_they_happen(proxied: Proxied, stack: Rig, new_tenant: Maker) -> None:
    """Neither held back in the proxy's memory nor ended by it."""
    with (
        httpx.Client(base_url=proxied.url, verify=False, headers=stack.admin_headers) as client,
        stream(stack, "/api/v1/changes", client) as events,
    ):
        for _ in range(3):
            made, began = new_tenant(), time.monotonic()
            while until(events, bool)["tenant"] != made["id"]:
                pass
            assert time.monotonic() - began < HEARD_S


def test_a_stream_comes_frame_by_frame(proxied: Proxied, furnished: Furnished) -> None:
    body: dict[str, Any] = {"model": furnished.adapter, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {furnished.secret}"}
    url = f"{proxied.url}/v1/chat/completions"
    with (
        httpx.Client(verify=False, timeout=60) as client,
        client.stream("POST", url, json=body | {"stream": True, "max_tokens": 8}, headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        frames = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert len(frames) > 8
    assert frames[-1] == "data: [DONE]"


def test_a_wrong_public_url_is_refused_at_the_start(proxied: Proxied) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "deploy.cli", "gateway", "--port", str(free_port())],
        env={**os.environ, **proxied.settings, "MOTET_PUBLIC_URL": "http://models.example.com"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 1
    assert "codes to log in would come back without TLS" in said.stderr


def test_the_doctor_finds_what_is_wrong_with_it(proxied: Proxied) -> None:
    code, said = _doctor(proxied, "--insecure")
    assert code == 0, said
    assert f"redirect_uri of house: {proxied.url}/api/v1/session/oidc/house/callback" in said
    code, said = _doctor(proxied, "--url", f"http://127.0.0.1:{proxied.port}")
    assert code == 1
    assert f"the gateway was told the path '{PREFIX}', and browsers use ''" in said
    code, said = _doctor(proxied)
    assert code == 1
    assert "can't be reached: [SSL: CERTIFICATE_VERIFY_FAILED]" in said
    code, said = _doctor(proxied, "--insecure", "--json", "--url", proxied.url.replace(PREFIX, "/elsewhere"))
    assert code == 1
    assert [each["good"] for each in json.loads(said)].count(False) >= 1


def _doctor(proxied: Proxied, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build_app(["doctor"]), ["doctor", *arguments], env=proxied.settings)
    return done.exit_code, done.output
