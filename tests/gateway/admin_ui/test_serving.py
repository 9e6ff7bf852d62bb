"""The three rules by which the admin UI is served, to the byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from gateway.admin_ui.build import UiBuild, policy
from gateway.public_url import PublicUrl

Client = TestClient[Any]
PAGE = {"accept": "text/html,*/*"}
INDEX = (
    '<meta name="motet-prefix" content="__MOTET_PREFIX__">'
    '<script src="./assets/a-1.js" nonce="__MOTET_NONCE__"></script>'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "assets" / "a-1.js").write_text("0;" * 2_000)
    (tmp_path / "assets" / "secret.env").write_text("not of a kind that is served")
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


@pytest.fixture
def built(client: Client, folder: Path) -> Iterator[Client]:
    state: Any = client.app.state
    before, state.admin_ui = state.admin_ui, UiBuild.read(folder, "/x/motet")
    yield client
    state.admin_ui = before


def test_a_page_is_never_kept_and_has_a_nonce_of_its_own(built: Client) -> None:
    nonces = set()
    for path in ("/admin/", "/admin/tenants/1/keys?state=live", "/admin/x/"):
        answer = built.get(path, headers=PAGE)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store"), path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        nonce = re.search(r'nonce="([^"]+)"', answer.text)
        assert nonce is not None
        assert answer.headers["content-security-policy"] == policy(nonce[1])
        assert '"/x/motet/admin/assets/a-1.js"' in answer.text
        assert 'content="/x/motet"' in answer.text
        assert answer.headers["x-frame-options"] == "DENY"
        nonces.add(nonce[1])
    assert len(nonces) == 3
    assert "unsafe" not in policy("n")


def test_an_asset_is_the_file_of_that_name_or_404(built: Client) -> None:
    found = built.get("/admin/assets/a-1.js", headers={"accept-encoding": "gzip"})
    assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (found.headers["content-encoding"], found.text) == ("gzip", "0;" * 2_000)
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = built.get("/admin/assets/a-1.js", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    for name in ("a-2.js", "secret.env", "..%2findex.html", "index.html", "manifest.json"):
        missing = built.get(f"/admin/assets/{name}", headers=PAGE)
        assert (missing.status_code, missing.headers["cache-control"]) == (404, "no-store"), name
        assert "html" not in missing.headers["content-type"]


@pytest.mark.parametrize("path", ["/api/nothing", "/api/v1/nothing", "/v1/nothing", "/administration", "/"])
def test_nothing_else_falls_back_to_the_page(built: Client, path: str) -> None:
    answer = built.get(path, headers=PAGE)
    assert answer.status_code == 404
    assert "html" not in answer.headers["content-type"]


def test_scripts_that_ask_for_pages_hear_that_there_is_nothing(built: Client) -> None:
    assert built.get("/admin/tenants", headers={"accept": "application/json"}).status_code == 404
    assert built.get("/admin/../etc/passwd%00", headers=PAGE).status_code == 404


def test_the_way_in_is_relative(built: Client) -> None:
    answer = built.get("/admin?a=b", headers=PAGE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "admin/?a=b")


def test_without_a_build_the_page_says_what_to_do(built: Client, tmp_path: Path) -> None:
    state: Any = built.app.state
    state.admin_ui = UiBuild.read(tmp_path / "nowhere", "")
    answer = built.get("/admin/", headers=PAGE)
    assert answer.status_code == 503
    assert "make ui" in answer.text


@pytest.mark.parametrize(
    ("url", "origin", "prefix"),
    [
        ("https://a.example/x/motet/", "https://a.example", "/x/motet"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", ""),
    ],
)
def test_a_public_url_has_an_origin_and_a_prefix(url: str, origin: str, prefix: str) -> None:
    assert PublicUrl.parse(url) == PublicUrl(origin, prefix)


@pytest.mark.parametrize(
    "url",
    [
        *("", "a.example", "ftp://a.example", "https://", "https://a.example/?x", "https://u:p@a.example"),
        *("https://a.example/%2e", "https://a.example:port", 'https://a.example/"onload'),
    ],
)
def test_a_public_url_that_no_browser_reaches_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="MOTET_PUBLIC_URL"):
        PublicUrl.parse(url)
