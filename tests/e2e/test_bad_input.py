"""Every row of the two tables in docs/API.md, sent as it says and answered as it says: quickly, with no trace behind."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from adapters.base import BaseSpec
from tests.e2e.conftest import DEMO, client_of
from tests.random_adapters import Recipe, safetensors_bytes, write_adapter

API = Path(__file__).resolve().parents[2] / "docs" / "API.md"
GENEROUS_S = 1.0
"""docs/API.md promises 50 ms; a shared test machine gets more, and the measured times are printed (`-rP`)."""

USER = {"role": "user", "content": "Hi"}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Row:
    case: str
    status: int
    type: str
    code: str | None
    param: str | None


def rows(heading: str) -> list[Row]:
    """The table under `heading`."""
    section = re.split(r"^#+ ", API.read_text(), flags=re.MULTILINE)
    (body,) = (part for part in section if part.startswith(heading))
    found = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", body, re.MULTILINE)
    return [
        Row(case, int(status), kind, None if code == "–" else code, None if param == "–" else param)
        for case, status, kind, code, param in found
    ]


BAD_INPUT = rows("Bad input")
REFUSED_UPLOADS = rows("Refused uploads")


@dataclass
class Sender:
    """Sends each case. `client` is acme's."""

    client: httpx.Client
    credentials: dict[str, str]
    base: BaseSpec

    def chat(self, key: str | None = None, drop: str | None = None, **fields: Any) -> httpx.Response:
        body = {"model": "pirate", "messages": [USER], "max_tokens": 4, **fields}
        if drop is not None:
            del body[drop]
        return self.raw(json.dumps(body).encode(), key)

    def raw(self, body: bytes, key: str | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {self.credentials.get(key, key)}"
        return self.client.post("/v1/chat/completions", content=body, headers=headers)

    def completion(self, prompt: Any) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": "pirate", "prompt": prompt})

    def content(self, content: Any) -> httpx.Response:
        return self.chat(messages=[{"role": "user", "content": content}])

    def without_key(self) -> httpx.Response:
        return httpx.post(f"{self.client.base_url}/v1/chat/completions", json={"model": "pirate"})


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
LONG = "the quick brown fox " * 3_000
HUGE = "a" * 8_000_000

CASES: dict[str, Callable[[Sender], httpx.Response]] = {
    "unknown-model": lambda s: s.chat(model="nobody"),
    "foreign-adapter": lambda s: s.chat(model="shout"),
    "malformed-model": lambda s: s.chat(model="../x"),
    "no-key": lambda s: s.without_key(),
    "wrong-key": lambda s: s.chat(key="mt_aaaaaaaaaaaa_" + "a" * 52),
    "revoked-key": lambda s: s.chat(key="revoked"),
    "expired-key": lambda s: s.chat(key="expired"),
    "missing-scope": lambda s: s.chat(key="reader"),
    "unknown-field": lambda s: s.chat(frobnicate=1),
    "unknown-inner-field": lambda s: s.chat(messages=[{**USER, "weight": 1}]),
    "wrong-type": lambda s: s.chat(temperature="hot"),
    "missing-model": lambda s: s.chat(drop="model"),
    "missing-messages": lambda s: s.chat(drop="messages"),
    "not-json": lambda s: s.raw(b"{'model': 'pirate'}"),
    "invalid-utf8": lambda s: s.raw(
        b'{"model": "pirate", "messages": [{"role": "user", "content": "\xff\xfe"}]}'
    ),
    "empty-body": lambda s: s.raw(b""),
    "large-body": lambda s: s.raw(b'{"model": "' + b"a" * 9_000_000),
    "many-messages": lambda s: s.chat(messages=[USER] * 10_000),
    "empty-messages": lambda s: s.chat(messages=[]),
    "long-prompt": lambda s: s.content(LONG),
    "huge-prompt": lambda s: s.content(HUGE),
    "max-tokens-over": lambda s: s.chat(max_tokens=8_192),
    "max-tokens-zero": lambda s: s.chat(max_tokens=0),
    "n-zero": lambda s: s.chat(n=0),
    "n-nine": lambda s: s.chat(n=9),
    "negative-temperature": lambda s: s.chat(temperature=-1),
    "image-part": lambda s: s.content(IMAGE),
    "unknown-role": lambda s: s.chat(messages=[{"role": "pirate", "content": "Arr"}]),
    "tools": lambda s: s.chat(tools=[{"type": "function", "function": {"name": "f"}}]),
    "stream-options-unstreamed": lambda s: s.chat(stream_options={"include_usage": True}),
    "top-logprobs-alone": lambda s: s.chat(top_logprobs=2),
    "bad-logit-bias": lambda s: s.chat(logit_bias={"yes": 1}),
    "empty-prompt": lambda s: s.completion(""),
    "token-out-of-vocabulary": lambda s: s.completion([9_999_999]),
    "wrong-method": lambda s: s.client.get("/v1/chat/completions"),
    "unknown-path": lambda s: s.client.post("/v1/nothing"),
}


@pytest.fixture(scope="module")
def credentials(admin: httpx.Client, tenant_ids: dict[str, str]) -> dict[str, str]:
    """acme's other keys: revoked, expired, and one that may only read."""
    path = f"/api/v1/tenants/{tenant_ids['acme']}/keys"

    def make(**fields: Any) -> dict[str, Any]:
        answer = admin.post(path, json={"name": "bad input", "scopes": ["inference"], **fields})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    expired = make(expires_at=soon)
    revoked = make()
    assert admin.delete(f"{path}/{revoked['key']['id']}").status_code == 200
    reader = make(scopes=["adapters:read"])
    time.sleep(1.1)
    return {"revoked": revoked["secret"], "expired": expired["secret"], "reader": reader["secret"]}


@pytest.fixture(scope="module")
def sender(acme: httpx.Client, credentials: dict[str, str], demo_model_dir: Path, base_model: str) -> Sender:
    acme.get("/v1/models")  # the connection and the key's cache are warm, as a client's are
    return Sender(acme, credentials, BaseSpec.from_dir(demo_model_dir, base_model))


@pytest.fixture
def no_trace(engine: httpx.Client) -> Iterator[None]:
    """The engine's journal is as long after the test as before."""
    before = _journal_end(engine)
    yield
    assert _journal_end(engine) == before


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.case)
@pytest.mark.usefixtures("no_trace")
def test_a_bad_request_is_answered_as_documented(sender: Sender, row: Row) -> None:
    began = time.perf_counter()
    answer = CASES[row.case](sender)
    seconds = time.perf_counter() - began
    print(f"{row.case}: {seconds * 1000:.1f} ms")
    _matches(answer, row)
    assert seconds < GENEROUS_S


def test_the_tables_and_the_cases_are_the_same() -> None:
    assert {row.case for row in BAD_INPUT} == set(CASES)
    assert {row.case for row in REFUSED_UPLOADS} == set(UPLOADS)


def _matches(answer: httpx.Response, row: Row) -> None:
    assert answer.status_code == row.status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert (error["type"], error["code"], error["param"]) == (row.type, row.code, row.param), error
    assert answer.headers["x-request-id"]


def _journal_end(engine: httpx.Client) -> int:
    after = 0
    while True:
        page = engine.get("/internal/journal", params={"after": after, "limit": 1_000}).json()
        lines = [line for line in page["lines"] if line["purpose"] == "tenant"]
        if not page["lines"]:
            return after
        after = page["lines"][-1]["n"] if lines or page["lines"] else after


# Uploads


def part(name: str, data: bytes) -> bytes:
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + data + b"\r\n"


def multipart(*parts: tuple[str, bytes]) -> bytes:
    return b"".join(part(name, data) for name, data in parts) + b"--xyz--\r\n"


MULTIPART = "multipart/form-data; boundary=xyz"


def upload(
    s: Sender, config: bytes | None = None, weights: bytes | None = None, name: str = "refused"
) -> httpx.Response:
    """The pirate's files, with what is bad about them."""
    config = (DEMO / "pirate" / CONFIG).read_bytes() if config is None else config
    weights = (DEMO / "pirate" / WEIGHTS).read_bytes() if weights is None else weights
    return post(s, multipart((CONFIG, config), (WEIGHTS, weights)), name=name)


def post(
    s: Sender, body: bytes, kind: str = MULTIPART, name: str = "refused", key: str | None = None
) -> httpx.Response:
    headers = {"content-type": kind}
    if key is not None:
        headers["authorization"] = f"Bearer {s.credentials[key]}"
    return s.client.post(f"/v1/adapters/{name}/versions", content=body, headers=headers)


def pirate_config(**fields: Any) -> bytes:
    return json.dumps({**json.loads((DEMO / "pirate" / CONFIG).read_text()), **fields}).encode()


def pirate_weights(change: Callable[[dict[str, Any], bytearray], None]) -> bytes:
    """The pirate's tensors with header and data changed in place."""
    raw = (DEMO / "pirate" / WEIGHTS).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), bytearray(raw[8 + size :])
    change(header, data)
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + bytes(data)


def overlap(header: dict[str, Any], data: bytearray) -> None:
    first, second = [name for name in header if name != "__metadata__" and "lora_A" in name][:2]
    header[second]["data_offsets"] = header[first]["data_offsets"]


def poison(header: dict[str, Any], data: bytearray) -> None:
    data[0:2] = b"\xc0\x7f"  # NaN in bf16


def silence(header: dict[str, Any], data: bytearray) -> None:
    for name, tensor in header.items():
        if "lora_B" in name:
            start, end = tensor["data_offsets"]
            data[start:end] = bytes(end - start)


def other_base(s: Sender) -> httpx.Response:
    tensors = {
        f"base_model.model.model.layers.0.self_attn.q_proj.lora_{factor}.weight": np.ones(size, np.float32)
        for factor, size in (("A", (4, 2_048)), ("B", (2_048, 4)))
    }
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    return upload(s, json.dumps(config).encode(), safetensors_bytes(tensors))


def announce(s: Sender) -> httpx.Response:
    """Says that 3 GiB follow, and sends none of it."""
    where = urlsplit(str(s.client.base_url))
    head = (
        f"POST /v1/adapters/refused/versions HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: {s.client.headers['authorization']}\r\nContent-Type: {MULTIPART}\r\n"
        f"Content-Length: {3 << 30}\r\n\r\n"
    )
    return _raw_exchange(where.hostname or "", where.port or 80, head.encode())


def traverse(s: Sender) -> httpx.Response:
    """A path that no client library would leave as it is."""
    where = urlsplit(str(s.client.base_url))
    head = (
        f"POST /v1/adapters/../x/versions HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: {s.client.headers['authorization']}\r\nContent-Type: {MULTIPART}\r\n"
        "Content-Length: 0\r\n\r\n"
    )
    return _raw_exchange(where.hostname or "", where.port or 80, head.encode())


def dotted(s: Sender) -> httpx.Response:
    where = urlsplit(str(s.client.base_url))
    head = (
        f"POST /v1/adapters/../versions HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: {s.client.headers['authorization']}\r\nContent-Type: {MULTIPART}\r\n"
        "Content-Length: 0\r\n\r\n"
    )
    return _raw_exchange(where.hostname or "", where.port or 80, head.encode())


def _raw_exchange(host: str, port: int, head: bytes) -> httpx.Response:
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(head)
        raw = b""
        while b"\r\n\r\n" not in raw or not _whole(raw):
            chunk = connection.recv(65_536)
            if not chunk:
                break
            raw += chunk
    top, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)  # type: ignore[arg-type]


def _whole(raw: bytes) -> bool:
    top, _, body = raw.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", top.lower())
    return length is not None and len(body) >= int(length[1])


UPLOADS: dict[str, Callable[[Sender], httpx.Response]] = {
    "other-base": other_base,
    "pickle": lambda s: upload(s, weights=b"\x80\x04\x95" + bytes(500)),
    "long-header": lambda s: upload(s, weights=struct.pack("<Q", 10**6) + b'{"a": 1}'),
    "overlapping-offsets": lambda s: upload(s, weights=pirate_weights(overlap)),
    "not-a-number": lambda s: upload(s, weights=pirate_weights(poison)),
    "no-effect": lambda s: upload(s, weights=pirate_weights(silence)),
    "dora": lambda s: upload(s, config=pirate_config(use_dora=True)),
    "config-not-json": lambda s: upload(s, config=b"r: 8"),
    "dotted-name": dotted,
    "upper-case-name": lambda s: upload(s, name="Pirate"),
    "encoded-traversal": lambda s: upload(s, name="..%252fx"),
    "traversal": traverse,
    "base-name": lambda s: upload(s, name=s.base.name),
    "missing-part": lambda s: post(s, multipart((CONFIG, b"{}"))),
    "unknown-part": lambda s: post(s, multipart(("readme", b"Hello"))),
    "duplicate-part": lambda s: post(s, multipart((CONFIG, b"{}"), (CONFIG, b"{}"))),
    "json-body": lambda s: post(s, b"{}", kind="application/json"),
    "no-boundary": lambda s: post(s, b"", kind="multipart/form-data"),
    "cut-multipart": lambda s: post(s, multipart((CONFIG, b"{}"))[:-9]),
    "announced-too-large": announce,
    "large-config": lambda s: upload(s, config=b" " * 300_000),
    "upload-without-scope": lambda s: post(s, multipart((CONFIG, b"{}")), key="reader"),
}


@pytest.fixture
def nothing_stored(acme: httpx.Client, platform: dict[str, Any]) -> Iterator[None]:
    """Catalog and store hold after the test what they held before."""
    before = _stored(acme)
    yield
    assert _stored(acme) == before


def _stored(acme: httpx.Client) -> tuple[list[str], int]:
    names = [adapter["id"] for adapter in acme.get("/v1/adapters?limit=200").json()["data"]]
    versions = sum(len(acme.get(f"/v1/adapters/{name}/versions").json()["data"]) for name in names)
    return names, versions


@pytest.mark.parametrize("row", REFUSED_UPLOADS, ids=lambda row: row.case)
@pytest.mark.usefixtures("no_trace", "nothing_stored")
def test_a_bad_upload_is_refused_as_documented(sender: Sender, row: Row) -> None:
    _matches(UPLOADS[row.case](sender), row)


def test_a_good_upload_with_the_same_tools_is_taken(sender: Sender, tmp_path: Path) -> None:
    """So that the refusals above are refused for their own reason."""
    folder = write_adapter(tmp_path, sender.base, Recipe(5, rank=2, layers=[0], targets=["q_proj"]))
    files = ((folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes())
    answer = upload(sender, *files, name="taken")
    assert answer.status_code == 201, answer.text
    assert upload(sender, *files, name="taken").status_code == 200
    assert sender.client.delete("/v1/adapters/taken").status_code == 200


@pytest.fixture(scope="module", autouse=True)
def _one_key_is_enough(api_keys: dict[str, str], base_url: str) -> Iterator[None]:
    """A refusal must not be another tenant's business: globex answers as before when all is over."""
    yield
    with client_of(base_url, api_keys["globex"]) as globex:
        assert globex.get("/v1/models").status_code == 200
