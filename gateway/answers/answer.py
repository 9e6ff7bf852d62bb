"""One answer as its client got it, so that it can be given again byte for byte."""

from __future__ import annotations

import msgspec

from gateway.replicas.driver import EngineUsage, Trailer

FORMAT = "answer 1"
"""Part of what seals an answer: one of another format does not open, and is as good as not kept."""


class Answer(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A whole, successful answer. Of a stream, `body` holds every frame but the `terminal` bytes; the
    comments that kept a connection alive are no part of it."""

    streamed: bool
    content_type: str
    headers: dict[str, str]  # which weights answered; never limits, which are each request's own
    body: bytes
    terminal: bytes = b""
    prompt: int
    completion: int
    cached: int
    request_id: str  # of the request that computed it

    @property
    def usage(self) -> EngineUsage:
        """Tokens by the engine's count, as `body` tells them."""
        return EngineUsage(self.prompt, self.completion, self.cached)


_DECODER = msgspec.msgpack.Decoder(Answer)


def encode(answer: Answer) -> bytes:
    return msgspec.msgpack.encode(answer)


def decode(data: bytes) -> Answer:
    """Raises `msgspec.MsgspecError` for what is no answer."""
    return _DECODER.decode(data)


class Recording:
    """Takes an answer's bytes as they go out, up to `most_bytes`; then it lets go of all of them."""

    def __init__(self, request_id: str, headers: dict[str, str], most_bytes: int) -> None:
        self._request_id = request_id
        self._headers = headers
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self.too_large = False

    def take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most_bytes:
            self.too_large = True
            self._parts.clear()
        else:
            self._parts.append(data)

    def answer(self, streamed: bool, content_type: str, terminal: bytes, trailer: Trailer) -> Answer | None:
        """What was taken; None when it was too large."""
        if self.too_large:
            return None
        return Answer(
            streamed=streamed,
            content_type=content_type,
            headers=self._headers,
            body=b"".join(self._parts),
            terminal=terminal,
            prompt=trailer.usage.prompt,
            completion=trailer.usage.completion,
            cached=trailer.usage.cached,
            request_id=self._request_id,
        )
