"""The tables of docs/API.md, and what it takes to send what they name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from adapters.base import BaseSpec

API = Path(__file__).resolve().parents[2] / "docs" / "API.md"
USER = {"role": "user", "content": "Hi"}
NULL = "\N{EN DASH}"


@dataclass(frozen=True)
class Row:
    """One documented refusal."""

    case: str
    status: int
    type: str
    code: str | None
    param: str | None


def rows(heading: str) -> list[Row]:
    """The table under `heading`."""
    sections = re.split(r"^#+ ", API.read_text(), flags=re.MULTILINE)
    (body,) = (part for part in sections if part.startswith(heading))
    found = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", body, re.MULTILINE)
    return [
        Row(case, int(status), kind, _text(code), _text(param)) for case, status, kind, code, param in found
    ]


def matches(answer: httpx.Response, row: Row) -> None:
    """Asserts that the answer is the documented one."""
    assert answer.status_code == row.status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert (error["type"], error["code"], error["param"]) == (row.type, row.code, row.param), error
    assert answer.headers["x-request-id"]


@dataclass
class Sender:
    """Sends requests as acme, or with another of `credentials`."""

    client: httpx.Client
    credentials: Mapping[str, str]
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


def _text(cell: str) -> str | None:
    return None if cell == NULL else cell
