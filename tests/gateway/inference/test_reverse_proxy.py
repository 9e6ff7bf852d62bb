"""The configurations of reverse proxies that we give away, under the proxies themselves where they are there:
HTTP/2 outside, the first frame at once, and the client's address as the proxy saw it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from litestar.types import Receive, Scope, Send

from gateway.client_address import TrustedProxies, client_address
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.upstream import Upstream
from tests.gateway.raw_http import served

FILES = Path(__file__).resolve().parents[3] / "deploy" / "proxy"
PATIENCE_S = 20.0
BODY = json.dumps({"model": "pirate", "messages": [{"role": "user", "content": "Hi"}], "stream": True})
CURL = ("curl", "--silent", "--no-buffer", "--insecure", "--http2", "--noproxy", "*", "--max-time", "30")
VERSION = "\\nHTTP/%{http_version}"


def nginx(folder: Path, outside: int, inside: int) -> list[str]:
    """The command that runs our file, with ports and paths of the test."""
    text = (FILES / "nginx.conf").read_text()
    for ours, tests in (
        ("127.0.0.1:8080", f"127.0.0.1:{inside}"),
        ("listen 443", f"listen 127.0.0.1:{outside}"),
        ("/etc/ssl/motet", str(folder)),
    ):
        assert ours in text
        text = text.replace(ours, tests)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(
        f"{user} daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {temporary}\n{text}\n}}"
    )
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]


def caddy(folder: Path, outside: int, inside: int) -> list[str]:
    text = (FILES / "Caddyfile").read_text()
    for ours, tests in (
        (
            "api.example.com {",
            f"https://127.0.0.1:{outside} {{\n\ttls {folder}/fullchain.pem {folder}/privkey.pem",
        ),
        ("127.0.0.1:8080", f"127.0.0.1:{inside}"),
        ("health_uri /readyz", ""),  # which stands in the application, not in what is served here
        ("health_interval 2s", ""),
    ):
        assert ours in text
        text = text.replace(ours, tests)
    config = folder / "Caddyfile"
    config.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return ["caddy", "run", "--config", str(config), "--adapter", "caddyfile"]


def make_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api.example.com")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "privkey.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


Command = Callable[[Path, int, int], list[str]]


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def command(request: pytest.FixtureRequest) -> Command:
    found: Command = request.param
    for program in (request.param.__name__, "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return found


@asynccontextmanager
async def proxied(command: Command, folder: Path, inside: int) -> AsyncIterator[str]:
    """The proxy's URL, once it takes connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        outside = free.getsockname()[1]
    make_certificate(folder)
    said = (folder / "log").open("wb")
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        *command(folder, outside, inside), stdout=said, stderr=said, env=environment
    )
    try:
        for _ in range(400):
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", outside)) == 0:
                    break
            assert process.returncode is None, (folder / "log").read_text()
            await asyncio.sleep(0.05)
        yield f"https://127.0.0.1:{outside}"
    finally:
        process.terminate()
        await process.wait()
        said.close()


async def curl(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*CURL, *arguments, stdout=asyncio.subprocess.PIPE)


async def test_the_first_frame_comes_through_at_once(
    command: Command, worker: Worker, upstream: Upstream, tmp_path: Path
) -> None:
    """The replica says one word and waits; a proxy that holds back would wait with it."""
    upstream.script.hold = asyncio.Event()
    async with proxied(command, tmp_path, int(worker.url.rsplit(":", 1)[1])) as url:
        asked = ("-H", "authorization: Bearer key", "-H", "accept-encoding: gzip, br", "--data", BODY)
        client = await curl("--include", "--write-out", VERSION, *asked, f"{url}/v1/chat/completions")
        assert client.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            first = await client.stdout.readuntil(b"\n\n")
        assert not upstream.script.hold.is_set()
        upstream.script.hold.set()
        rest = await client.stdout.read()
        assert await client.wait() == 0
    head, _, frame = first.partition(b"\r\n\r\n")
    assert b"content-encoding" not in head.lower()
    assert frame.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n\nHTTP/2")
    await worker.settled()


async def test_the_address_is_what_the_proxy_saw(command: Command, tmp_path: Path) -> None:
    """Whatever the client claims; and metrics stay inside."""
    trusted = TrustedProxies("127.0.0.1")

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        found = str(client_address(scope, trusted)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": found, "more_body": False})

    async with served(app) as (inside, _), proxied(command, tmp_path, inside) as url:
        for claimed in ("x-forwarded-for: 198.51.100.1", "x-forwarded-for: nonsense, 127.0.0.1", "x-a: b"):
            client = await curl("--interface", "127.0.0.2", "-H", claimed, f"{url}/")
            assert (await client.communicate())[0] == b"127.0.0.2"
        client = await curl("--write-out", "%{http_code}", "--output", os.devnull, f"{url}/metrics")
        assert (await client.communicate())[0] == b"404"
