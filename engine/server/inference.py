"""The two inference routes: read, prepare, submit, answer. Every way out ends the attempt in the core."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import cast

import structlog
from litestar.types import HTTPScope, Receive, Scope, Send

from adapters import headers
from adapters.refusal import RequestRefused
from engine.core.protocol import Ended, Outcome, Ready, Tokens
from engine.server import asgi, wire
from engine.server.attempt import Attempt
from engine.server.caller import Caller, read_caller
from engine.server.chat import Prepared
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError, from_ended, from_refusal
from engine.server.transcript import cut_frame

log = structlog.get_logger("engine.server")

MAX_CHUNK_TOKENS = 256
"""In one chunk of a stream, about 2 KB each with all log-probabilities: a gateway bounds what it takes as one
event, and for a slow client many tokens gather."""
MAX_WRITE_BYTES = 256 * 1024
"""Of chunks that gathered: past it they are written, which waits for a slow client."""

Prepare = Callable[[bytes, Caller, Ready], Awaitable[Prepared]]


class Inference:
    """An ASGI app for one endpoint, without middleware around its stream."""

    def __init__(
        self, client: CoreClient, prepare: Prepare, max_body_bytes: int, body_timeout_s: float
    ) -> None:
        self._client = client
        self._prepare = prepare
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(cast("HTTPScope", scope), receive, send)
        except asgi.ClientLeft:
            return
        except EngineError as error:
            await _refuse(send, error)
        except RequestRefused as refusal:
            await _refuse(send, from_refusal(refusal))

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise EngineError(405, "Use POST.", kind="invalid_request_error", code="method_not_allowed")
        self._client.admit()
        caller = read_caller(scope["headers"])
        body = await asgi.read_body(receive, self._max_body_bytes, self._body_timeout_s)
        prepared = await self._prepare(body, caller, self._client.core)
        attempt = self._client.submit(prepared.add, prepared.ends)
        watcher = asyncio.create_task(asgi.on_disconnect(receive, lambda: self._left(attempt)))
        try:
            exchange = Exchange(attempt, prepared)
            await (exchange.stream(send) if prepared.streaming else exchange.unary(send))
        finally:
            watcher.cancel()
            attempt.leave()
            self._client.abort(attempt)

    def _left(self, attempt: Attempt) -> None:
        log.info("client_left", request=attempt.add.request, tenant=attempt.add.tenant)
        self._client.abort(attempt)


class Exchange:
    """One attempt's frames turned into one answer."""

    def __init__(self, attempt: Attempt, prepared: Prepared) -> None:
        self._attempt = attempt
        self._transcript = prepared.transcript
        self._answer = prepared.answer
        self._started = False  # the stream

    async def unary(self, send: Send) -> None:
        while True:
            for frame in await self._attempt.take():
                if isinstance(frame, Ended):
                    await self._send_whole(send, frame)
                    return
                for piece in self._transcript.feed(frame):
                    self._answer.gather(piece, self._transcript.echo)

    async def stream(self, send: Send) -> None:
        """Headers wait for the core's first word, so that a failure before it has a status of its own."""
        while True:
            frames = await self._attempt.take()
            ended = frames[-1] if isinstance(frames[-1], Ended) else None
            if ended is not None and not self._is_whole(ended) and not self._started:
                raise self._error(ended)
            data = b""
            for frame in _in_small_frames(frames):
                data += self._frames_of(frame)
                if len(data) >= MAX_WRITE_BYTES:
                    await self._write(send, data, more=True)
                    data = b""
            if ended is not None:
                await self._write(send, data + self._last(ended), more=False)
                return
            if data:
                await self._write(send, data, more=True)

    def _frames_of(self, frame: Tokens) -> bytes:
        pieces = self._transcript.feed(frame)
        return b"".join(self._answer.frames(piece, self._transcript.echo) for piece in pieces)

    async def _write(self, send: Send, data: bytes, *, more: bool) -> None:
        if not self._started:
            self._started = True
            await asgi.start(send, 200, asgi.EVENT_STREAM)
        await asgi.write(send, data, more=more)

    def _is_whole(self, ended: Ended) -> bool:
        """What the core finished may still have lost tokens here, when they were more than may wait."""
        return ended.outcome is Outcome.FINISHED and not self._attempt.overflowed

    def _last(self, ended: Ended) -> bytes:
        if self._is_whole(ended):
            return self._answer.last_frames(ended) + wire.trailer_frame(ended)
        return wire.error_frame(self._error(ended).openai_body) + wire.trailer_frame(ended)

    async def _send_whole(self, send: Send, ended: Ended) -> None:
        if not self._is_whole(ended):
            raise self._error(ended)
        await asgi.respond(send, 200, self._answer.body(ended), [_trailer_header(wire.trailer(ended))])

    def _error(self, ended: Ended) -> EngineError:
        if self._attempt.overflowed:
            error = EngineError(503, "The client read too slowly; the stream was cut.", code="slow_reader")
        else:
            error = from_ended(ended)
        error.trailer = wire.trailer(ended)
        return error


def _in_small_frames(frames: Sequence[Tokens | Ended]) -> Iterator[Tokens]:
    """The tokens of all frames, however many gathered: each chunk is written by itself, so that others get
    their turn between, and a slow client's answer isn't all encoded at once."""
    for frame in frames:
        if isinstance(frame, Tokens):
            yield from cut_frame(frame, MAX_CHUNK_TOKENS)


async def _refuse(send: Send, error: EngineError) -> None:
    extra = [_trailer_header(error.trailer)] if error.trailer is not None else []
    await asgi.respond(send, error.status, error.openai_body, [*error.headers, *extra])


def _trailer_header(trailer: bytes) -> tuple[bytes, bytes]:
    return headers.TRAILER_HEADER.encode(), trailer
