"""A whole gateway in this process over a base so small that adapters are a few kilobytes, and its client."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from deploy.local.services import DatabaseUrls
from gateway.app import create_app
from gateway.catalog.parts import ACCEPTANCE_PART, CONFIG_PART, WEIGHTS_PART
from gateway.config import Settings
from gateway.principal import Scope, TenantId
from gateway.services import Services
from tests.adapters.uploads import TINY
from tests.gateway.conftest import Operator, settings_of
from tests.s3_server import BUCKET, RunningS3

TUS = {"tus-resumable": "1.0.0"}
BYTES = {"content-type": "application/offset+octet-stream"}
MULTIPART = "multipart/form-data; boundary=xyz"


def multipart(*parts: tuple[str, bytes]) -> bytes:
    heads = [f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() for name, _ in parts]
    blocks = [head + data + b"\r\n" for head, (_, data) in zip(heads, parts, strict=True)]
    return b"".join(blocks) + b"--xyz--\r\n"


def metadata(**pairs: str) -> str:
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items())


STORED = 202
"""What an upload is answered here: no replica is there to prove it."""


@dataclass
class Files:
    """What the web server of the tests serves, by path: bytes, or where it is instead, or a status."""

    url: str
    by_path: dict[str, bytes | str | int]


@dataclass
class Bench:
    """One tenant's way to the gateway, and what lies behind it."""

    client: TestClient[Any]
    tenant: TenantId
    headers: dict[str, str]
    home: Path

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **more)

    def create(self, file: str, length: int, **more: Any) -> httpx.Response:
        told = metadata(filename=file, **more.pop("metadata", {}))
        headers = {**TUS, "upload-length": str(length), "upload-metadata": told, **more.pop("headers", {})}
        return self.request("POST", "/v1/uploads", headers=headers, **more)

    def begin(self, file: str, length: int, **more: Any) -> str:
        made = self.create(file, length, **more)
        assert made.status_code == 201, made.text
        return f"/v1/{made.headers['location']}"

    def patch(self, place: str, offset: int, data: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        said = {**TUS, **BYTES, "upload-offset": str(offset), **named}
        return self.request("PATCH", place, content=data, headers=said)

    def offset(self, place: str) -> int:
        found = self.request("HEAD", place, headers=TUS)
        assert found.status_code == 200, found.status_code
        return int(found.headers["upload-offset"])

    def sent(self, file: str, data: bytes) -> str:
        """The id of a finished upload."""
        place = self.begin(file, len(data))
        assert self.patch(place, 0, data).status_code == 204
        return place.rpartition("/")[2]

    def version(self, name: str, **body: Any) -> httpx.Response:
        return self.request("POST", f"/v1/adapters/{name}/versions", json=body)

    def post(self, name: str, body: bytes, kind: str = MULTIPART) -> httpx.Response:
        return self.request(
            "POST", f"/v1/adapters/{name}/versions", content=body, headers={"content-type": kind}
        )

    def kept(self) -> list[str]:
        """Files of this gateway's spool and store, of whatever tenant."""
        spool = [path for path in (self.home / "uploads").rglob("*") if path.name != "open"]
        return [
            str(path.relative_to(self.home)) for path in [*spool, *(self.home / "store").rglob("*.motet")]
        ]

    @property
    def services(self) -> Services:
        found = self.client.app.state.services
        assert isinstance(found, Services)
        return found


@pytest.fixture(scope="session")
def tiny_base(demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's tokenizer over the shapes of `TINY`; the gateway reads no weights."""
    folder = tmp_path_factory.mktemp("tiny-base")
    for path in demo_model_dir.iterdir():
        if path.suffix != ".safetensors" and path.name != "config.json":
            (folder / path.name).symlink_to(path.resolve())
    config = json.loads((demo_model_dir / "config.json").read_text())
    config |= {
        "num_hidden_layers": TINY.num_layers,
        "hidden_size": TINY.hidden_size,
        "head_dim": TINY.head_dim,
    }
    config |= {"num_attention_heads": TINY.num_heads, "num_key_value_heads": TINY.num_kv_heads}
    config["intermediate_size"] = TINY.intermediate_size
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def adapter(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good one, with prompts of its own."""
    folder = tmp_path_factory.mktemp("adapter")
    write_adapter(
        folder, BaseSpec.from_dir(tiny_base, "tiny"), Recipe(1, rank=4, targets=["q_proj", "v_proj"])
    )
    (folder / ACCEPTANCE_PART).write_text('[{"input": "Ahoy?", "must_match": "arr"}]')
    return folder


@pytest.fixture(scope="session")
def files(adapter: Path) -> dict[str, bytes]:
    return {name: (adapter / name).read_bytes() for name in (CONFIG_PART, WEIGHTS_PART, ACCEPTANCE_PART)}


@pytest.fixture(scope="session")
def web() -> Iterator[Files]:
    """A web server as a tenant may run one: it answers as it likes."""
    served: dict[str, bytes | str | int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = served.get(self.path, 404)
            match found:
                case int():
                    self.send_response(found)
                    self.send_header("content-length", "0")
                    self.end_headers()
                case str():
                    self.send_response(302)
                    self.send_header("location", found)
                    self.send_header("content-length", "0")
                    self.end_headers()
                case bytes():
                    self.send_response(200)
                    self.send_header("content-length", str(len(found)))
                    self.end_headers()
                    self.wfile.write(found)

        def log_message(self, *_: Any) -> None:
            """Not on the tests' terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Files(f"http://127.0.0.1:{server.server_port}", served)
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningS3]:
    """Not started yet: only those that ask it wait for that."""
    running = RunningS3(tmp_path_factory.mktemp("s3"))
    yield running
    running.kill()


@contextmanager
def opened(settings: Settings) -> Iterator[TestClient[Any]]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def tiny_gateway(
    database: DatabaseUrls,
    redis_url: str,
    tiny_base: Path,
    web: Files,
    s3: RunningS3,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestClient[Any]]:
    settings = settings_of(database, redis_url, tmp_path_factory.mktemp("tiny-gateway")).model_copy(
        update={
            "base_model": str(tiny_base),
            "base_name": "tiny-of-uploads",
            "body_timeout_s": 5.0,
            "import_s3": f"s3://{BUCKET}/in/{{tenant}}/?endpoint={s3.server.endpoint}",
            "import_urls": f"{web.url}/ok/,https://127.0.0.2/ok/",
            "import_networks": "127.0.0.1/32",
        }
    )
    with opened(settings) as client:
        yield client


@pytest.fixture
def new_bench(
    tiny_gateway: TestClient[Any], operator: Operator, new_tenant: Callable[[], Awaitable[TenantId]]
) -> Callable[[], Awaitable[Bench]]:
    async def make() -> Bench:
        tenant = await new_tenant()
        wanted = {"name": "all", "scopes": list(Scope)}
        made = tiny_gateway.post(f"/api/v1/tenants/{tenant}/keys", json=wanted, headers=operator.headers)
        assert made.status_code == 201, made.text
        headers = {"authorization": f"Bearer {made.json()['secret']}"}
        home: Path = tiny_gateway.app.state.services.settings.home
        return Bench(tiny_gateway, tenant, headers, home)

    return make


@pytest.fixture
async def bench(new_bench: Callable[[], Awaitable[Bench]]) -> AsyncIterator[Bench]:
    made = await new_bench()
    before = made.kept()
    yield made
    assert [path for path in made.kept() if "upload-" in path] == [
        path for path in before if "upload-" in path
    ]
