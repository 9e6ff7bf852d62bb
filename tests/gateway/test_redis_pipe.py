from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis import exceptions as errors

from gateway import redis_pipe
from gateway.redis import connect
from gateway.redis_pipe import ScriptPipe


@pytest.fixture
async def pipe(redis_url: str) -> AsyncIterator[ScriptPipe]:
    pipe = ScriptPipe(redis_url, 2.0)
    yield pipe
    await pipe.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """Takes connections and answers nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", writers
    finally:
        for writer in writers:
            writer.close()
        server.close()


async def test_each_caller_gets_its_own_answer(pipe: ScriptPipe) -> None:
    calls = [pipe.call("EVAL", "return {ARGV[1], redis.call('PING')}", 0, n) for n in range(500)]
    answers = await asyncio.gather(*calls)
    assert answers == [[str(n).encode(), b"PONG"] for n in range(500)]


async def test_nobody_comes_before_the_introduction(redis_url: str) -> None:
    for _ in range(20):
        pipe, calls = ScriptPipe(redis_url, 2.0), []
        for _ in range(40):  # each a turn of the loop later, so that some come while it connects
            calls.append(asyncio.create_task(pipe.call("PING")))
            await asyncio.sleep(0)
        assert set(await asyncio.gather(*calls)) == {b"PONG"}
        await pipe.close()


async def test_an_error_is_its_callers_alone(pipe: ScriptPipe) -> None:
    commands: list[tuple[str, ...]] = [
        ("ECHO", "a"),
        ("EVAL", "return redis.error_reply('MOTET no')", "0"),
        ("EVALSHA", "0" * 40, "0"),
        ("ECHO", "b"),
    ]
    answers = await asyncio.gather(*(pipe.call(*each) for each in commands), return_exceptions=True)
    assert [answers[0], answers[3]] == [b"a", b"b"]
    assert isinstance(answers[1], errors.ResponseError)
    assert str(answers[1]) == "MOTET no"
    assert isinstance(answers[2], errors.NoScriptError)


async def test_numbers_travel_in_full(pipe: ScriptPipe) -> None:
    for value in (0.1, 1e22, 12345678901234567, -0.0, 2.5e-7):
        assert await pipe.call("ECHO", value) == repr(value).encode()


async def test_who_leaves_does_not_shift_the_answers(pipe: ScriptPipe) -> None:
    await pipe.call("PING")
    leaver = asyncio.create_task(pipe.call("ECHO", "left"))
    stayer = asyncio.create_task(pipe.call("ECHO", "stayed"))
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == b"stayed"
    with pytest.raises(asyncio.CancelledError):
        await leaver


async def test_a_lost_connection_fails_who_waits_and_the_next_call_connects(redis_url: str) -> None:
    redis, pipe = connect(redis_url), ScriptPipe(redis_url, 2.0)
    mine = await pipe.call("CLIENT", "ID")
    waits = asyncio.create_task(pipe.call("BLPOP", "never-pushed", 5))
    await asyncio.sleep(0.05)
    await redis.client_kill_filter(_id=mine)
    with pytest.raises(errors.ConnectionError):
        await waits
    assert await pipe.call("PING") == b"PONG"
    await pipe.close()
    await redis.aclose()


async def test_a_silent_server_is_given_up_for_all() -> None:
    async with silent_server() as (url, writers):
        pipe = ScriptPipe(url, 0.2)
        answers = await asyncio.gather(*(pipe.call("PING") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(answer, errors.TimeoutError) for answer in answers)
        assert len(writers) == 1
        with pytest.raises(errors.TimeoutError):
            await pipe.call("PING")
        assert len(writers) == 2  # the connection whose answers may still come is not used again
        await pipe.close()


async def test_calls_without_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_pipe, "MAX_WAITING", 2)
    async with silent_server() as (url, _):
        pipe = ScriptPipe(url, 1.0)
        calls = [asyncio.create_task(pipe.call("PING")) for _ in range(3)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert "Too many" in str(done.pop().exception())
        await pipe.close()
        await asyncio.wait(calls)


async def test_a_wrong_password_is_said(redis_url: str) -> None:
    head, _, tail = redis_url.partition("@")
    pipe = ScriptPipe(f"{head[:-3]}bad@{tail}", 2.0)
    with pytest.raises(errors.RedisError, match="password"):
        await pipe.call("PING")
    await pipe.close()


async def test_a_closed_pipe_says_so(pipe: ScriptPipe) -> None:
    await pipe.call("PING")
    await pipe.close()
    with pytest.raises(errors.ConnectionError):
        await pipe.call("PING")


async def test_no_call_goes_out_before_the_connection_is_introduced(pipe: ScriptPipe) -> None:
    """A server with a password answers nothing before it, and hangs up on a script."""

    async def late(turns: int) -> object:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await pipe.call("EVAL", "return #ARGV", 0, *range(16))

    assert await asyncio.gather(*(late(turns) for turns in range(600))) == [16] * 600
