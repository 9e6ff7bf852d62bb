"""The client's side of an answer: headers once, bytes, keep-alive comments, and whether it is still there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from litestar.types import Receive, Send

from gateway.errors import ApiError

T = TypeVar("T")

KEEP_ALIVE: Final = b": ka\n\n"
LEAST_LOOK_S: Final = 0.01
EVENT_STREAM: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class ClientGone(Exception):
    """It closed its connection, or left bytes unread for longer than the limit, all its pauses together."""


@dataclass(frozen=True, slots=True)
class ClientPatience:
    """In seconds."""

    write_timeout_s: float = 60.0  # all writes of an answer: who reads a little now and then holds a place
    keep_alive_s: float = 15.0  # of silence, after which a comment is sent


class Client:
    """Owned by one walk. Only whole frames are written, so that a comment may stand between any two
    writes."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        patience: ClientPatience,
        write_now: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`write_now`: as `gateway/direct_write.py` makes it, where the server has it."""
        self._receive = receive
        self._send = send
        self._write_now = write_now or _never
        self._patience_s = patience.write_timeout_s
        self.keep_alive_s = patience.keep_alive_s
        self._walk: asyncio.Task[Any] | None = None  # while it is watched
        self._writing_since: float | None = None
        self.started = False
        self.finished = False
        self.gone = False
        self.stream_headers: Mapping[str, str] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs, a client that leaves raises `ClientGone` in it, wherever it waits, and so
        does one that leaves bytes unread for too long."""
        self._walk = walk = asyncio.current_task()
        assert walk is not None
        watcher = asyncio.create_task(self._watch(walk), name="client-watch")
        self._looks = asyncio.get_running_loop().call_later(self._patience_s, self._look)
        try:
            yield
        except asyncio.CancelledError:
            if not self.gone:
                raise
            walk.uncancel()
            raise ClientGone from None
        finally:
            watcher.cancel()
            self._looks.cancel()
            self._walk = None

    def _look(self) -> None:
        """One timer for all writes of an answer: one for each would cost more than the write."""
        pause_s = self._patience_s
        if self._writing_since is not None:
            pause_s -= time.monotonic() - self._writing_since
            if pause_s <= 0 and self._walk is not None:
                self.gone = True
                self._walk.cancel()
                return
        self._looks = asyncio.get_running_loop().call_later(max(LEAST_LOOK_S, pause_s), self._look)

    async def _watch(self, walk: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.finished:
            self.gone = True
            walk.cancel()

    async def patiently(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; while it takes long, the client hears comments."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=self.keep_alive_s))[0]:
                await self.keep_alive()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def keep_alive(self) -> None:
        await self.write(KEEP_ALIVE)

    async def last(self, end: Callable[[], Awaitable[T]]) -> T:
        """What `end` gives, which writes down that the answer is whole, and may be called again. A process
        that leaves meanwhile is too late to cut it: what is billed goes out."""
        try:
            return await end()
        except asyncio.CancelledError:
            walk = asyncio.current_task()
            if self.gone or walk is None:
                raise
            walk.uncancel()
            return await end()

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Part of a stream; the headers go before the first. Raises `ClientGone` when it won't take it in
        time."""
        if not self.started:
            await self._start(200, {**EVENT_STREAM, **self.stream_headers})
        await self._put(data, more)

    def write_now(self, data: bytes) -> bool:
        """The same at once, for a stream that has begun; False, and nothing is written, where it would have
        to wait."""
        return self._write_now(data)

    async def respond(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole answer at once."""
        assert not self.started
        await self._start(status, {**headers, "content-length": str(len(body))})
        await self._put(body, more=False)

    async def fail(self, error: ApiError) -> None:
        """Before the headers, the error is raised for the application to answer; after, it is a frame and the
        end."""
        if not self.started:
            raise error
        await self.write(error_frame(error), more=False)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        self.started = True  # not before: it may wait behind an earlier answer of its connection

    async def _put(self, data: bytes, more: bool) -> None:
        self.finished = not more
        if self._walk is not None:
            await self._write(data, more)
            return
        try:  # nobody watches any more
            async with asyncio.timeout(self._patience_s):
                await self._write(data, more)
        except TimeoutError:
            self.gone = True
            raise ClientGone from None

    async def _write(self, data: bytes, more: bool) -> None:
        self._writing_since = began = time.monotonic()
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self._writing_since = None
        self._patience_s -= time.monotonic() - began
        if self._patience_s <= 0 and more:
            self.gone = True
            raise ClientGone


def _never(_data: bytes) -> bool:
    return False


def error_frame(error: ApiError) -> bytes:
    return b"data: " + error.openai_body() + b"\n\n"
