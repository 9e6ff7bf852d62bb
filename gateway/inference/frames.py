"""Finds the ends of server-sent events in bytes as they come, and looks into the few that matter.

Bytes are never changed, only cut where an event ends: at a blank line, whose two line ends may each be LF,
CRLF or CR (WHATWG HTML, 9.2.6), however the network split them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from adapters.headers import TRAILER_PREFIX
from gateway.replicas.driver import Trailer

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""A frame longer than this is no answer of ours (echo with log-probabilities of a whole context fits)."""

_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_MARKS = (b"[DONE]", b": motet ", b'"error"')
_CR = ord("\r")
_DONE = b"data: [DONE]"
_TRAILER = msgspec.json.Decoder(Trailer)


class FrameTooLong(Exception):
    """The upstream sent no frame end for `MAX_FRAME_BYTES`."""


class FrameScanner:
    """`feed` gives the bytes of all frames that are whole by now; the rest waits."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_empty(self) -> bool:
        """Whether the next byte begins a frame."""
        return not self._parts

    @property
    def rest(self) -> bytes:
        """What came after the last frame end."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> bytes:
        """Raises `FrameTooLong`. A long frame is put together once, not with each chunk that comes of it."""
        was_cr = bool(self._parts) and self._parts[-1].endswith(b"\r")
        self._parts.append(chunk)
        self._size += len(chunk)
        whole = b""
        if was_cr or b"\n" in chunk or b"\r" in chunk:
            data = self.rest
            end = _last_end(data)
            whole, rest = data[:end], data[end:]
            self._parts, self._size = [rest] if rest else [], len(rest)
        if self._size > MAX_FRAME_BYTES:
            raise FrameTooLong
        return whole


def _last_end(data: bytes) -> int:
    if b"\r" not in data:
        return data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    end = 0
    for match in _END.finditer(data):
        # A CR at the very end may be half of a CRLF: the other half belongs to this frame.
        if match.end() < len(data) or not data.endswith(b"\r"):
            end = match.end()
    return end


def are_plain(data: bytes) -> bool:
    """Whether these are whole frames, if the first byte begins one, and all of them go through: what the
    scanner and `sort_frames` find too, at a fraction of their cost."""
    return (
        data.endswith(b"\n\n")
        and _CR not in data
        and b"[DONE]" not in data
        and b": motet " not in data
        and b'"error"' not in data
    )


def split_frames(block: bytes) -> list[bytes]:
    """Whole frames, each with the line ends that close it."""
    frames, start = [], 0
    for match in _END.finditer(block):
        frames.append(block[start : match.end()])
        start = match.end()
    return frames


@dataclass(slots=True)
class Sorted:
    """A block of frames by what becomes of them."""

    through: bytes = b""
    done: bytes = b""
    trailer: Trailer | None = None
    has_error: bool = False


def sort_frames(block: bytes) -> Sorted:
    """Which bytes go through, and what is held back. Frames are looked at from the first on that carries
    one of three marks."""
    marks = [at for at in map(block.find, _MARKS) if at >= 0]
    if not marks:
        return Sorted(through=block)
    begin = _frame_begin(block, min(marks))
    sorted_ = Sorted()
    through = [block[:begin]]
    for frame in split_frames(block[begin:]):
        text = frame.lstrip(b"\r\n")
        if text.startswith(TRAILER_PREFIX):
            sorted_.trailer = read_trailer(text[len(TRAILER_PREFIX) :])
        elif text.startswith(_DONE):
            sorted_.done += frame
        else:
            through.append(frame)
            sorted_.has_error = sorted_.has_error or _is_error(text)
    sorted_.through = b"".join(through)
    return sorted_


def _frame_begin(block: bytes, at: int) -> int:
    """Where the frame begins that holds this byte; the block's begin where line ends are of several kinds."""
    end = -1 if _CR in block else block.rfind(b"\n\n", 0, at)
    return end + 2 if end >= 0 else 0


def read_trailer(text: bytes | str) -> Trailer | None:
    """None for what is no trailer: the attempt then ends as one that broke off, and is asked for its
    record."""
    try:
        return _TRAILER.decode(text)
    except msgspec.MsgspecError:
        return None


def _is_error(frame: bytes) -> bool:
    if b'"error"' not in frame:
        return False
    for line in frame.splitlines():
        if line.startswith(b"data:"):
            try:
                payload = msgspec.json.decode(line[5:].strip())
            except msgspec.MsgspecError:
                continue
            if isinstance(payload, dict) and payload.get("error"):
                return True
    return False
