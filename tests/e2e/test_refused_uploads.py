"""Every row of the second table in docs/API.md: refused as it says, and nothing of it is kept."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from deploy.bench.random_adapters import Recipe, safetensors_bytes, write_adapter
from tests.e2e.conftest import DEMO
from tests.e2e.documented import Row, Sender, matches, rows

REFUSED_UPLOADS = rows("Refused uploads")
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


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


def bare_post(s: Sender, path: str, length: int) -> httpx.Response:
    """A request whose path no client library has tidied, and whose body is announced but not sent."""
    where = urlsplit(str(s.client.base_url))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: {s.client.headers['authorization']}\r\nContent-Type: {MULTIPART}\r\n"
        f"Content-Length: {length}\r\n\r\n"
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
    "dotted-name": lambda s: bare_post(s, "/v1/adapters/../versions", 0),
    "upper-case-name": lambda s: upload(s, name="Pirate"),
    "encoded-traversal": lambda s: upload(s, name="..%252fx"),
    "traversal": lambda s: bare_post(s, "/v1/adapters/../x/versions", 0),
    "base-name": lambda s: upload(s, name=s.base.name),
    "missing-part": lambda s: post(s, multipart((CONFIG, b"{}"))),
    "unknown-part": lambda s: post(s, multipart(("readme", b"Hello"))),
    "duplicate-part": lambda s: post(s, multipart((CONFIG, b"{}"), (CONFIG, b"{}"))),
    "json-body": lambda s: post(s, b"{}", kind="application/json"),
    "text-body": lambda s: post(s, b"{}", kind="text/plain"),
    "no-boundary": lambda s: post(s, b"", kind="multipart/form-data"),
    "cut-multipart": lambda s: post(s, multipart((CONFIG, b"{}"))[:-9]),
    "announced-too-large": lambda s: bare_post(s, "/v1/adapters/refused/versions", 3 << 30),
    "large-config": lambda s: upload(s, config=b" " * 300_000),
    "upload-without-scope": lambda s: post(s, multipart((CONFIG, b"{}")), key="reader"),
}


def test_the_table_and_the_cases_are_the_same() -> None:
    assert {row.case for row in REFUSED_UPLOADS} == set(UPLOADS)


@pytest.fixture
def nothing_stored(acme: httpx.Client) -> Iterator[None]:
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
    matches(UPLOADS[row.case](sender), row)


def test_a_good_upload_with_the_same_tools_is_taken(sender: Sender, tmp_path: Path) -> None:
    """So that the refusals above are refused for their own reason."""
    folder = write_adapter(tmp_path, sender.base, Recipe(5, rank=2, layers=[0], targets=["q_proj"], std=0.2))
    files = ((folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes())
    answer = upload(sender, *files, name="taken")
    assert answer.status_code == 201, answer.text
    assert upload(sender, *files, name="taken").status_code == 200
    assert sender.client.delete("/v1/adapters/taken").status_code == 200
