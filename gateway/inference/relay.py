"""Bytes through. A stream's whole frames go on unchanged as they come; what ends it is held back.

frames            sent at once, as the same bytes
data: [DONE]      held until the end has happened (`ending.py`)
: motet {…}       kept: it is for us
an error frame    sent; the engine ends its stream with it, and no [DONE] follows
no end at all     the replica broke off: an error frame, and no [DONE]

Nearly all frames go straight from the replica's connection to the client's, without waking the walk: those
that come whole, hold no mark, and find nothing waiting before them. The walk passes on all others, and would
pass on these as the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import AnswerTooLong
from gateway.inference.call import Attempt
from gateway.inference.client import Client
from gateway.inference.frames import MAX_FRAME_BYTES, FrameScanner, FrameTooLong, are_plain, sort_frames
from gateway.replicas.driver import UpstreamFailed


@dataclass(slots=True)
class Relayed:
    """How a stream's bytes came to their end."""

    terminal: bytes = b""  # held back: `data: [DONE]` and whatever closes it
    told_error: bool = False  # the engine's own error frame went through
    broke_off: bool = False  # no trailer came


async def relay(attempt: Attempt, client: Client, idle_s: float) -> Relayed:
    """Sends all but the terminal bytes; sets `attempt.trailer`. Raises `ClientGone`, `AnswerTooLong`."""
    return await _Relay(attempt, client, idle_s).run()


class _Relay:
    """Of one stream."""

    def __init__(self, attempt: Attempt, client: Client, idle_s: float) -> None:
        assert attempt.upstream is not None
        self._attempt, self._upstream = attempt, attempt.upstream
        self._client = client
        self._idle_s = idle_s
        self._silent_s = 0.0
        self._scanner = FrameScanner()
        self._result = Relayed()

    async def run(self) -> Relayed:
        attempt, result = self._attempt, self._result
        chunk = attempt.first
        try:
            while chunk and attempt.trailer is None:
                await self._pass_on(self._scanner.feed(chunk))
                if attempt.trailer is None:
                    chunk = await self._next()
        except UpstreamFailed:
            result.broke_off = True
        except FrameTooLong:
            raise AnswerTooLong(MAX_FRAME_BYTES) from None
        result.broke_off = attempt.trailer is None
        return result

    async def _pass_on(self, block: bytes) -> None:
        if not block:
            return
        frames, result = sort_frames(block), self._result
        result.terminal += frames.done
        result.told_error = result.told_error or frames.has_error
        self._attempt.trailer = frames.trailer
        if frames.through:
            await self._client.write(frames.through)

    async def _next(self) -> bytes:
        """The next bytes that did not go straight on; comments keep the client's connection alive while
        there are none."""
        self._silent_s = 0.0
        while self._silent_s < self._idle_s:
            pause_s = min(self._client.keep_alive_s, self._idle_s - self._silent_s)
            try:
                return await self._upstream.read_some(pause_s, self._straight)
            except TimeoutError:
                self._silent_s += pause_s
                await self._client.keep_alive()
        raise UpstreamFailed(f"the replica was silent for {self._idle_s:.0f} s")

    def _straight(self, data: bytes) -> bool:
        """Whether these bytes are the client's now."""
        if self._scanner.is_empty and are_plain(data) and self._client.write_now(data):
            self._silent_s = 0.0
            return True
        return False
