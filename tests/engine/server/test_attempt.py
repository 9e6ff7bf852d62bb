"""The mailbox between frame reader and answer: ordered, bounded, and always with an end."""

from __future__ import annotations

import asyncio

from engine.core.protocol import AddRequest, Ended, Outcome, Sampling, Tier, Timings, Tokens, Usage
from engine.server.attempt import Attempt

ADD = AddRequest("r", 1, "t", "k", None, "", "", [1], Sampling(max_tokens=9, seed=1))
ENDED = Ended("r", 1, Outcome.FINISHED, Usage(1, 1, 0), Timings(0, 0, 0, 0), Tier.BASE)


def tokens(*ids: int) -> Tokens:
    return Tokens("r", 1, 0, list(ids))


async def test_frames_come_in_order_and_together() -> None:
    attempt = Attempt(ADD, 10)
    waiting = asyncio.create_task(attempt.take())
    await asyncio.sleep(0)
    attempt.put(tokens(1))
    attempt.put(tokens(2))
    assert await waiting == [tokens(1, 2)]
    attempt.put(ENDED)
    assert await attempt.take() == [ENDED]
    assert attempt.ended.result() is ENDED


async def test_an_unread_stream_is_cut_and_still_ends() -> None:
    attempt = Attempt(ADD, 3)
    attempt.put(tokens(1, 2))
    attempt.put(tokens(3, 4))
    assert attempt.overflowed
    attempt.put(tokens(5))
    attempt.put(ENDED)
    assert await attempt.take() == [ENDED]


async def test_reading_makes_room() -> None:
    attempt = Attempt(ADD, 3)
    for start in range(0, 30, 3):
        attempt.put(tokens(start, start + 1, start + 2))
        assert len(await attempt.take()) == 1
    assert not attempt.overflowed


async def test_nothing_is_kept_for_a_reader_that_left() -> None:
    attempt = Attempt(ADD, 3)
    attempt.put(tokens(1))
    attempt.leave()
    attempt.put(tokens(2, 3, 4, 5))
    assert not attempt.overflowed
    attempt.put(ENDED)
    assert await attempt.ended is ENDED
