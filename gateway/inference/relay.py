"""Bytes through. A stream's whole frames go on unchanged as they come; what ends it is held back.

frames            sent at once, as the same bytes
data: [DONE]      held until the end has happened (`ending.py`)
: motet {…}       kept: it is for us
an error frame    sent; the engine ends its stream with it, and no [DONE] follows
no end at all     the replica broke off: an error frame, and no [DONE]
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import AnswerTooLong
from gateway.inference.call import Attempt
from gateway.inference.client import Client
from gateway.inference.frames import MAX_FRAME_BYTES, FrameScanner, FrameTooLong, sort_frames
from gateway.replicas.driver import UpstreamFailed


@dataclass(slots=True)
class Relayed:
    """How a stream's bytes came to their end."""

    terminal: bytes = b""  # held back: `data: [DONE]` and whatever closes it
    told_error: bool = False  # the engine's own error frame went through
    broke_off: bool = False  # no trailer came


async def relay(attempt: Attempt, client: Client, idle_s: float) -> Relayed:
    """Sends all but the terminal bytes; sets `attempt.trailer`. Raises `ClientGone`, `AnswerTooLong`."""
    assert attempt.upstream is not None
    scanner, result = FrameScanner(), Relayed()
    chunk = attempt.first
    try:
        while chunk and attempt.trailer is None:
            await _pass_on(scanner.feed(chunk), attempt, client, result)
            if attempt.trailer is None:
                chunk = await _next(attempt, client, idle_s)
    except UpstreamFailed:
        result.broke_off = True
    except FrameTooLong:
        raise AnswerTooLong(MAX_FRAME_BYTES) from None
    result.broke_off = attempt.trailer is None
    return result


async def _pass_on(block: bytes, attempt: Attempt, client: Client, result: Relayed) -> None:
    if not block:
        return
    frames = sort_frames(block)
    result.terminal += frames.done
    result.told_error = result.told_error or frames.has_error
    attempt.trailer = frames.trailer
    if frames.through:
        await client.write(frames.through)


async def _next(attempt: Attempt, client: Client, idle_s: float) -> bytes:
    """The next bytes; comments keep the client's connection alive while there are none."""
    assert attempt.upstream is not None
    silent_s = 0.0
    while silent_s < idle_s:
        pause_s = min(client.keep_alive_s, idle_s - silent_s)
        try:
            return await attempt.upstream.read_some(pause_s)
        except TimeoutError:
            silent_s += pause_s
            await client.keep_alive()
    raise UpstreamFailed(f"the replica was silent for {idle_s:.0f} s")
