from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest
from litestar.types import HTTPReceiveMessage, Message

from gateway.inference.client import Client, ClientGone, ClientPatience

PATIENCE_S = 0.2


async def nothing() -> HTTPReceiveMessage:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets that event")


class Slow:
    """A connection that takes each piece only after a while."""

    def __init__(self, pause_s: float) -> None:
        self.taken = 0
        self._pause_s = pause_s

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(self._pause_s)
            self.taken += 1


@pytest.mark.parametrize("watched", [True, False])
async def test_who_reads_a_little_now_and_then_does_not_hold_its_place_for_ever(watched: bool) -> None:
    slow = Slow(PATIENCE_S / 4)
    client = Client(nothing, slow, ClientPatience(PATIENCE_S))

    async def answer() -> None:
        with client.watched() if watched else nullcontext():
            for _ in range(100):
                await client.write(b"data: {}\n\n")

    with pytest.raises(ClientGone):
        await answer()
    assert slow.taken <= 4
    assert client.gone


@pytest.mark.parametrize("watched", [True, False])
async def test_who_takes_nothing_is_left_within_the_write(watched: bool) -> None:
    client = Client(nothing, Slow(60.0), ClientPatience(PATIENCE_S))

    async def answer() -> None:
        with client.watched() if watched else nullcontext():
            await client.write(b"data: {}\n\n")

    with pytest.raises(ClientGone):
        await asyncio.wait_for(answer(), 30)
    assert client.gone


async def test_a_long_answer_to_a_client_that_reads_takes_as_long_as_it_takes() -> None:
    quick = Slow(0.0)
    client = Client(nothing, quick, ClientPatience(PATIENCE_S))
    for _ in range(10):
        await client.write(b"data: {}\n\n")
        await asyncio.sleep(PATIENCE_S / 5)
    assert quick.taken == 10
