"""A load generator that costs little: HTTP/1.1 keep-alive on httptools, one request at a time a connection,
every prompt its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

PROMPT_BYTES = 470
CALL_TIMEOUT_S = 60.0
OPENED_AT_ONCE = 100
_numbers = itertools.count()


@dataclass
class Tally:
    """What came back. Seconds."""

    whole_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    frames: int = 0
    wall_s: float = 0.0

    @property
    def requests(self) -> int:
        return len(self.whole_s)


class LoadError(RuntimeError):
    """An answer that was none."""


def prompts(model: str, *, stream: bool, max_tokens: int = 64) -> Iterator[bytes]:
    """Bodies of one length that differ from their first words on, so that no cache hides what they cost."""
    filler = ("the quick brown fox jumps over the lazy dog and runs on " * 10)[:PROMPT_BYTES]
    head = f'{{"model":"{model}","messages":[{{"role":"user","content":"'
    tail = f'"}}],"temperature":0,"max_tokens":{max_tokens},"stream":{"true" if stream else "false"}}}'
    salt = time.time_ns()
    for number in _numbers:
        yield f"{head}{salt + number:020d} {filler}{tail}".encode()


class _Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_at = 0.0
        self.frames = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by type

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(LoadError(f"the connection was closed: {error}"))

    async def call(self, head: bytes, body: bytes) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self.first_at, self.frames, self._kept = 0.0, 0, b""
        self.transport.write(head % len(body) + body)
        await self._answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if not self.first_at:
            self.first_at, self._kept = time.perf_counter(), body[:500]
        self.frames += body.count(b"data: ")

    def on_message_complete(self) -> None:
        if self._answer.done():
            return
        status = self._parser.get_status_code()
        if status == 200:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(LoadError(f"{status}: {self._kept!r}"))


async def connect(url: str) -> _Caller:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    _, caller = await asyncio.get_running_loop().create_connection(_Caller, parts.hostname, parts.port)
    return caller


def request_head(url: str, headers: Mapping[str, str]) -> bytes:
    """With a place for the body's length."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\ncontent-length: %d\r\n\r\n"


async def load(
    url: str, headers: Mapping[str, str], bodies: Iterator[bytes], *, connections: int, seconds: float
) -> Tally:
    """Closed loop over so many connections for so long. Raises `LoadError` at the first answer but 200."""
    tally, head = Tally(), request_head(url, headers)
    callers = [await connect(url) for _ in range(connections)]
    began = time.perf_counter()
    until = began + seconds

    async def work(caller: _Caller) -> None:
        while (start := time.perf_counter()) < until:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await caller.call(head, next(bodies))
            tally.whole_s.append(time.perf_counter() - start)
            tally.first_s.append(caller.first_at - start)
            tally.frames += caller.frames

    try:
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(work(caller))
    finally:
        for caller in callers:
            caller.transport.close()
    tally.wall_s = time.perf_counter() - began
    return tally


@dataclass(frozen=True)
class OpenStream:
    """A stream that has begun and is not read further."""

    caller: _Caller
    task: asyncio.Task[None]

    def close(self) -> None:
        self.task.cancel()
        self.caller.transport.close()


async def open_streams(
    url: str, headers: Mapping[str, str], bodies: Iterator[bytes], count: int, streams: list[OpenStream]
) -> None:
    """Opens so many, adds each to `streams` at once, and waits for the first frame of each. Raises
    `LoadError` and `TimeoutError`; what was opened is the caller's to close."""
    head = request_head(url, headers)
    for start in range(0, count, OPENED_AT_ONCE):
        callers = [await connect(url) for _ in range(min(OPENED_AT_ONCE, count - start))]
        batch = [
            OpenStream(caller, asyncio.create_task(caller.call(head, next(bodies)))) for caller in callers
        ]
        streams += batch
        async with asyncio.timeout(CALL_TIMEOUT_S):
            while not all(stream.caller.frames for stream in batch):
                for stream in batch:
                    if stream.task.done():
                        stream.task.result()
                await asyncio.sleep(0.01)
