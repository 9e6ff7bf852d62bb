"""A fake replica that computes nothing, so that what stands before it can be measured: the engine's protocol
(docs/ARCHITECTURE.md, seams) on httptools, with canned frames.

`python -m deploy.bench.gateway.fake_replica PORT`. `POST /pace?ms=5` sets the time between frames (0: as fast
as they are taken), `?hold=1` stops streams after their first frame until `?hold=0`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec
import uvloop

from adapters import headers

WORDS: Final = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur")
PROMPT_TOKENS: Final = 100
SSE_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"
STATE: Final = {"sequence": 1, "running": 0, "waiting": 0, "waiting_tokens": 0, "device": [], "host": []}


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    payload = {
        "id": "chatcmpl-0198d5c8a0f27a1bb3c4d5e6f7a8b9c0",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "base",
        "system_fingerprint": "fp_0123456789",
        "choices": [choice],
    }
    return _chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _trailer(completion: int, outcome: str = "finished") -> bytes:
    return json.dumps(
        {
            "usage": {"prompt": PROMPT_TOKENS, "completion": completion, "cached": 0},
            "timings": {"queue_ms": 0.1, "load_ms": 0.0, "ttft_ms": 1.0, "total_ms": 2.0},
            "tier": "base",
            "outcome": outcome,
            "reason": "",
        }
    ).encode()


def _answer(body: bytes, more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    return head + more + b"\r\n" + body


ROLE: Final = _event({"role": "assistant", "content": ""})
TEXTS: Final = tuple(_event({"content": f" {word}"}) for word in WORDS)
FINISH: Final = _event({}, "stop")
DONE: Final = _chunk(b"data: [DONE]\n\n")
UNARY: Final = json.dumps(
    {
        "id": "chatcmpl-0198d5c8a0f27a1bb3c4d5e6f7a8b9c0",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "base",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello! How can I help you today?"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 9, "total_tokens": PROMPT_TOKENS + 9},
    }
).encode()
UNARY_TRAILER: Final = headers.TRAILER_HEADER.encode() + b": " + _trailer(9) + b"\r\n"


class Asked(msgspec.Struct):
    """The part of a request that shapes its answer."""

    stream: bool = False
    max_tokens: int = 64


_ASKED = msgspec.json.Decoder(Asked)


class Pace:
    """Of all streams, changed between measurements."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.flowing = asyncio.Event()
        self.flowing.set()


class Connection(asyncio.Protocol):
    """One connection, a request at a time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._parser = httptools.HttpRequestParser(self)
        self._stream: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by type

    def connection_lost(self, _error: Exception | None) -> None:
        self._room.set()
        if self._stream is not None:
            self._stream.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body: list[bytes] = []
        self._url = b""
        self._ours = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._ours = self._ours or name.lower() == headers.REQUEST.encode()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        url = urlsplit(self._url.decode())
        if url.path.startswith("/v1/") and url.path.endswith("completions"):
            asked = _ASKED.decode(b"".join(self._body))
            if asked.stream:
                self._stream = asyncio.create_task(self._frames(asked.max_tokens, self._ours))
            else:
                self._transport.write(_answer(UNARY, UNARY_TRAILER if self._ours else b""))
        else:
            self._transport.write(_answer(self._control(url.path, parse_qs(url.query))))

    def _control(self, path: str, query: dict[str, list[str]]) -> bytes:
        if path == "/pace":
            self._pace.pause_s = float(query.get("ms", ["0"])[0]) / 1000
            (self._pace.flowing.clear if query.get("hold") == ["1"] else self._pace.flowing.set)()
        if path.endswith("/abort"):
            return _trailer(1, "aborted")
        if path == "/internal/journal":
            return json.dumps({"journal_id": "fake", "lines": [], "next": 0}).encode()
        return json.dumps(STATE).encode()

    async def _frames(self, count: int, ours: bool) -> None:
        """One write a frame, as a server does that has one token after the other."""
        pace, write = self._pace, self._transport.write
        write(SSE_HEAD + ROLE)
        for number in range(count):
            if pace.pause_s:
                await asyncio.sleep(pace.pause_s)
            else:
                await self._room.wait()
                await asyncio.sleep(0)
            await pace.flowing.wait()
            write(TEXTS[number % len(TEXTS)])
        end = FINISH + DONE
        if ours:
            end += _chunk(headers.TRAILER_PREFIX + _trailer(count) + b"\n\n")
        write(end + LAST_CHUNK)
        self._stream = None


async def serve(port: int) -> None:
    pace = Pace()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(pace), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
