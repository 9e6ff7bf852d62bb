"""One request as a client sees it, to the byte of its end, over connections that are its own."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

DONE = b"data: [DONE]\n\n"
TIMEOUT = aiohttp.ClientTimeout(total=180)


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` 0: the connection broke, or the client left. `tokens`: what a whole answer holds.
    `request_id`: of the request that computed it, where this one was its retry."""

    status: int
    whole: bool = False
    code: str | None = None
    tokens: int = 0
    request_id: str = ""
    retry_after: str | None = None
    first_s: float = 0.0  # of a stream: from sending to its first token


def body_of(model: str, tokens: int, *, prompt: int = 5, stream: bool = False, **more: Any) -> dict[str, Any]:
    """A completion over `prompt` token ids, so that its tokens are known beforehand."""
    return {
        "model": model,
        "prompt": list(range(1000, 1000 + prompt)),
        "max_tokens": tokens,
        "stream": stream,
        "temperature": 0,
        **more,
    }


def session(parallel: int = 0) -> aiohttp.ClientSession:
    """`parallel` connections at most; each request has one of its own, so that all workers get some."""
    connector = aiohttp.TCPConnector(limit=parallel, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, trust_env=False)


async def ask(
    http: aiohttp.ClientSession, base_url: str, headers: dict[str, str], body: dict[str, Any]
) -> Answer:
    """Returns with the last byte of the answer's last frame, before the connection is done with."""
    began = time.monotonic()
    try:
        async with http.post(f"{base_url}/v1/completions", json=body, headers=headers) as answer:
            named = answer.headers.get("x-request-id", "")
            request_id = answer.headers.get("x-motet-original-request", named)
            if answer.status != 200:
                return _refused(answer, await answer.read(), request_id)
            if not body["stream"]:
                told = json.loads(await answer.read())["usage"]["completion_tokens"]
                return Answer(200, True, None, told, request_id)
            return await _streamed(answer, request_id, began)
    except (aiohttp.ClientError, OSError, TimeoutError):
        return Answer(0)


async def ask_and_leave(
    http: aiohttp.ClientSession, base_url: str, headers: dict[str, str], body: dict[str, Any], after_s: float
) -> Answer:
    """The client leaves after a while, wherever its request is by then."""
    try:
        async with asyncio.timeout(after_s):
            return await ask(http, base_url, headers, body)
    except TimeoutError:
        return Answer(0)


async def _streamed(answer: aiohttp.ClientResponse, request_id: str, began: float) -> Answer:
    rest, tokens, first_s = b"", 0, 0.0
    async for chunk in answer.content.iter_any():
        *frames, rest = (rest + chunk).split(b"\n\n")
        for frame in frames:
            if frame + b"\n\n" == DONE:
                return Answer(200, True, None, tokens, request_id, first_s=first_s)
            if not frame.startswith(b"data: "):
                continue
            data = json.loads(frame.removeprefix(b"data: "))
            if "error" in data:
                return Answer(200, False, str(data["error"]["code"]), tokens, request_id)
            first_s = first_s or time.monotonic() - began
            tokens += sum(1 for choice in data["choices"] if choice["finish_reason"] is None)
    return Answer(200, False, "no_end", tokens, request_id)


def _refused(answer: aiohttp.ClientResponse, body: bytes, request_id: str) -> Answer:
    try:
        code = str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        code = f"untyped: {body[:100]!r}"
    return Answer(answer.status, False, code, 0, request_id, answer.headers.get("retry-after"))
