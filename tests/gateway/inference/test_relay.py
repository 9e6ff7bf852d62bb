"""Frames that go straight from the replica's connection to the client's, and those that the walk passes on:
the same bytes, in the same order, with the same end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from litestar.types import Message
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway import direct_write
from gateway.inference.call import Attempt
from gateway.inference.client import KEEP_ALIVE, Client, ClientPatience
from gateway.inference.frames import FrameScanner, are_plain, sort_frames
from gateway.inference.relay import Relayed, relay
from gateway.replicas.http_client import HttpUpstream
from gateway.replicas.replica import Load, Replica
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.test_client import nothing
from tests.gateway.inference.test_frames import stream
from tests.gateway.inference.test_walk import ask, post
from tests.gateway.inference.upstream import Upstream

SOON_S = 0.05
FRAME = b'data: {"choices":[]}\n\n'
ERROR = b'data: {"error":{"message":"no"}}\n\n'


@dataclass
class Wire:
    """A client's connection. `takes`: whether it takes each next piece at once; for ever after, no."""

    takes: Iterator[bool]
    heard: bytes = b""
    direct: int = 0
    sent: int = 0
    on_second_comment: Callable[[], None] = lambda: None

    def write_now(self, data: bytes) -> bool:
        if not next(self.takes, False):
            return False
        self.direct += 1
        self.heard += data
        return True

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(0)
            self.sent += 1
            self.heard += message["body"]
            if message["body"] == KEEP_ALIVE and self.heard.count(KEEP_ALIVE) == 2:
                asyncio.get_running_loop().call_soon(self.on_second_comment)

    def client(self, keep_alive_s: float = 15.0) -> Client:
        return Client(nothing, self.send, ClientPatience(keep_alive_s=keep_alive_s), self.write_now)


@dataclass
class Replied:
    """A replica's answer, as its connection tells of it."""

    upstream: HttpUpstream = field(default_factory=HttpUpstream)

    def attempt(self, first: bytes) -> Attempt:
        return Attempt(1, cast(Replica, None), cast(Load, None), self.upstream, first)

    def say(self, *bodies: bytes) -> None:
        """What one read brings."""
        for body in bodies:
            self.upstream.feed(body)
        self.upstream.fed()


async def relayed(pieces: list[bytes], takes: list[bool], pauses: list[bool]) -> tuple[Relayed, Wire]:
    wire, replied = Wire(iter(takes)), Replied()
    running = asyncio.create_task(relay(replied.attempt(pieces[0]), wire.client(), 5.0))
    for piece, pause in zip(pieces[1:], pauses, strict=True):
        replied.say(piece)
        if pause:
            for _ in range(5):  # the walk has passed on what it was woken for
                await asyncio.sleep(0)
    replied.upstream.end()
    return await running, wire


@given(data=st.data(), newline=st.sampled_from(["\n", "\n", "\r\n"]), error=st.booleans())
def test_whoever_passes_a_frame_on_the_client_hears_the_same(
    data: st.DataObject, newline: str, error: bool
) -> None:
    ours = stream(newline)
    whole = FRAME * 3 + (ERROR if error else b"") + ours
    frame_ends = [i + 2 for i in range(len(whole)) if whole[i : i + 2] == b"\n\n"]
    cuts = data.draw(
        st.lists(st.one_of(st.integers(1, len(whole)), st.sampled_from(frame_ends)), max_size=12)
    )
    edges = [0, *sorted({*cuts, len(whole)})]
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    flags = st.lists(st.booleans(), min_size=len(pieces) - 1, max_size=len(pieces) - 1)
    pauses = data.draw(flags)
    slow, twin = asyncio.run(relayed(pieces, [], pauses))
    fast, wire = asyncio.run(relayed(pieces, data.draw(flags), pauses))
    assert fast == slow
    assert wire.heard == twin.heard == whole[: whole.index(b"data: [DONE]")]
    assert twin.direct == 0
    assert not fast.broke_off
    assert fast.told_error == error


@example([b"x", b"\n", b"\r", b"\n", b"\n"])
@given(
    st.lists(
        st.sampled_from(
            [FRAME, ERROR, b": motet {}\n\n", b"data: [DONE]\n\n", b": c\n\n", b"x", b"\r", b"\n"]
        )
    )
)
def test_what_is_called_plain_goes_through_whole(parts: list[bytes]) -> None:
    block = b"".join(parts)
    if are_plain(block):
        scanner = FrameScanner()
        whole = scanner.feed(block)
        sorted_ = sort_frames(whole)
        assert (whole, scanner.rest, sorted_.through) == (block, b"", block)
        assert (sorted_.done, sorted_.trailer, sorted_.has_error) == (b"", None, False)
    elif set(parts) <= {FRAME, b": c\n\n"}:
        assert not parts


async def test_whole_frames_wake_nobody_and_those_of_one_read_are_one_write() -> None:
    wire, replied = Wire(iter([True] * 10)), Replied()
    running = asyncio.create_task(relay(replied.attempt(FRAME), wire.client(), 5.0))
    await asyncio.sleep(0.01)
    for _ in range(4):
        replied.say(FRAME, FRAME)
    assert wire.direct == 4
    assert wire.heard == FRAME * 9
    assert wire.sent == 1  # the first, with the headers
    replied.upstream.end()
    await running


async def test_in_a_worker_only_a_streams_ends_go_the_long_way(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, write = [], direct_write._write

    def counted(cycle: RequestResponseCycle, data: bytes) -> bool:
        through.append(data)
        return write(cycle, data)

    monkeypatch.setattr(direct_write, "_write", counted)
    upstream.script.words, upstream.script.pause_s = [f" {number}" for number in range(10)], 0.01
    body = (await post(http, worker, ask(stream=True)))[2]
    direct = b"".join(through)
    assert direct in body
    assert direct.count(b"data: ") >= 5
    await worker.settled()


async def test_silence_counts_from_the_last_frame_whoever_passed_it_on() -> None:
    wire, replied = Wire(iter([True] * 100)), Replied()
    client = wire.client(keep_alive_s=SOON_S)
    wire.on_second_comment = lambda: replied.say(FRAME)  # at two thirds of the silence that ends a stream
    relayed = await relay(replied.attempt(FRAME), client, idle_s=3 * SOON_S)
    assert relayed.broke_off
    assert wire.heard == FRAME + KEEP_ALIVE * 2 + FRAME + KEEP_ALIVE * 3
    assert wire.direct == 1


async def test_a_stream_that_speaks_now_and_then_is_never_late() -> None:
    replied = Replied()
    reading = asyncio.create_task(replied.upstream.read_some(6 * SOON_S, lambda _: True))
    for _ in range(8):
        await asyncio.sleep(SOON_S)
        replied.say(FRAME)
        assert not reading.done()
    with pytest.raises(TimeoutError):
        await reading
