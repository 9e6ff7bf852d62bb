"""The local socket: order, bounds, merging under backlog, and noticing that the other end has gone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.core import transport as wire
from engine.core.backlog import Backlog, merge_tokens
from engine.core.protocol import (
    Abort,
    AdapterRef,
    Ended,
    FinishReason,
    FromCore,
    Outcome,
    Prefetch,
    Tier,
    Timings,
    ToCore,
    TokenLogprob,
    Tokens,
    Usage,
)
from engine.core.transport import CoreTransport, PeerGone, ServerTransport


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/core.sock"


@pytest.fixture
def core(address: str) -> Iterator[CoreTransport]:
    transport = CoreTransport(address)
    yield transport
    transport.close(0)


def tokens(count: int, start: int = 0) -> list[Tokens]:
    return [Tokens(request="r", attempt=1, choice=0, tokens=[i]) for i in range(start, start + count)]


def ended() -> Ended:
    return Ended("r", 1, Outcome.FINISHED, Usage(1, 1, 0), Timings(0.0, 0.0, None, 0.0), Tier.BASE)


async def test_frames_cross_in_order_both_ways(address: str, core: CoreTransport) -> None:
    server = ServerTransport(address)
    sent: list[ToCore] = [Abort("a", 1), Prefetch(AdapterRef("f" * 64, "o"))]
    await server.send(*sent)
    await asyncio.to_thread(core.wait, 5.0)
    assert core.recv_all() == sent
    core.send([*tokens(3), ended()])
    assert await server.recv() == [*tokens(3), ended()]
    server.close()


async def test_a_server_that_does_not_read_gets_merged_tokens_and_loses_none(
    address: str, core: CoreTransport
) -> None:
    server = ServerTransport(address)
    await server.send(Abort("a", 1))
    await asyncio.to_thread(core.wait, 5.0)
    count = 20_000
    for frame in tokens(count):
        core.send([frame])
    core.send([ended()])
    received: list[FromCore] = []
    while not received or not isinstance(received[-1], Ended):
        core.flush()
        received.extend(await server.recv())
    frames = [f for f in received if isinstance(f, Tokens)]
    assert [t for f in frames for t in f.tokens] == list(range(count))
    assert len(frames) < count
    server.close()


async def test_a_server_that_is_behind_reads_all_that_is_there_at_once(
    address: str, core: CoreTransport
) -> None:
    server = ServerTransport(address)
    await server.send(Abort("a", 1))
    await asyncio.to_thread(core.wait, 5.0)
    for frame in tokens(20):
        core.send([frame])
    await asyncio.to_thread(time.sleep, 0.2)
    assert await server.recv() == tokens(20)
    core.send(tokens(1, start=20))
    assert await server.recv() == tokens(1, start=20)
    server.close()


async def test_no_message_is_larger_than_the_other_end_takes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket would be closed on its sender, and the replica be lost."""
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 2_000)
    aborts: list[ToCore] = [Abort(f"{number:0200}", 1) for number in range(100)]
    frames = [Tokens(request=str(number), attempt=1, choice=0, tokens=[1] * 300) for number in range(100)]
    arrived: list[ToCore] = []
    received: list[FromCore] = []
    with closing(ServerTransport(address)) as server, closing(CoreTransport(address)) as core:
        await server.send(*aborts)
        while len(arrived) < len(aborts):
            await asyncio.to_thread(core.wait, 5.0)
            arrived += core.recv_all()
        core.send(frames)
        while len(received) < len(frames):
            core.flush()
            received += await server.recv()
    assert (arrived, received) == (aborts, frames)


async def test_the_server_waits_for_a_core_and_for_room_in_its_queue(address: str) -> None:
    server = ServerTransport(address)
    count = 0

    async def send_many() -> None:
        nonlocal count
        while True:
            await server.send(Abort(str(count), 1))
            count += 1

    sending = asyncio.create_task(send_many())
    await asyncio.sleep(0.1)
    assert count == 0, "no core is there"
    core = CoreTransport(address)
    received: list[ToCore] = []
    while len(received) < 500:
        await asyncio.to_thread(core.wait, 5.0)
        received += core.recv_all()
    sending.cancel()
    assert received[:500] == [Abort(str(i), 1) for i in range(500)]
    server.close()
    core.close(0)


async def test_a_server_that_never_reads_counts_as_gone(
    address: str, core: CoreTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_HELD_FRAMES", 10)

    def send_many() -> None:
        for i in range(10_000):
            core.send([Tokens(request=str(i), attempt=1, choice=0, tokens=[1])])

    with pytest.raises(PeerGone):
        send_many()


async def test_the_core_notices_that_the_server_has_gone(address: str, core: CoreTransport) -> None:
    server = ServerTransport(address)
    await server.send(Abort("a", 1))
    await asyncio.to_thread(core.wait, 5.0)
    server.close()

    def wait_and_read() -> None:
        for _ in range(100):
            core.wait(0.05)
            core.recv_all()

    with pytest.raises(PeerGone):
        await asyncio.to_thread(wait_and_read)


async def test_the_server_reads_the_last_frames_and_then_notices_that_the_core_has_gone(address: str) -> None:
    server = ServerTransport(address)
    core = CoreTransport(address)
    core.send([ended()])
    await asyncio.to_thread(core.close)
    assert await server.recv() == [ended()]
    with pytest.raises(PeerGone):
        await asyncio.wait_for(server.recv(), 5)
    server.close()


SERVER = """
import asyncio, sys
from engine.core.protocol import Abort
from engine.core.transport import ServerTransport

async def main():
    await ServerTransport(sys.argv[1]).send(Abort("a", 1))
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_core_notices_that_the_server_was_killed(address: str, core: CoreTransport) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER, address], cwd=Path(__file__).parents[3])
    while not core.recv_all():
        core.wait(0.1)
    server.kill()
    server.wait()

    def wait_and_read() -> None:
        for _ in range(100):
            core.wait(0.05)

    with pytest.raises(PeerGone):
        wait_and_read()


def test_the_core_leaves_when_its_parent_is_another(address: str) -> None:
    core = CoreTransport(address, parent_pid=1 << 30)
    with pytest.raises(PeerGone):
        core.recv_all()
    core.close(0)


def test_wake_ends_a_wait_from_another_thread(core: CoreTransport) -> None:
    timer = threading.Timer(0.05, core.wake)
    timer.start()
    before = time.monotonic()
    core.wait(10.0)
    timer.join()
    assert time.monotonic() - before < 5.0


def test_merging_keeps_tokens_logprobs_finish_and_prompt_logprobs() -> None:
    one, two = TokenLogprob(1, -0.5, []), TokenLogprob(2, -0.25, [])
    first = Tokens("r", 1, 0, [1], logprobs=[one], prompt_logprobs=[None, one])
    last = Tokens("r", 1, 0, [2], logprobs=[two], finish=FinishReason.STOP, stop_token=2)
    assert merge_tokens([first]) is first
    assert merge_tokens([first, last]) == Tokens(
        "r", 1, 0, [1, 2], [one, two], FinishReason.STOP, 2, prompt_logprobs=[None, one]
    )


def test_a_backlog_keeps_order_gathers_by_choice_and_drops_from_the_front() -> None:
    backlog: Backlog[FromCore] = Backlog()
    for choice, token in [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5)]:
        backlog.add(Tokens("r", 1, choice, [token]))
    backlog.add(Tokens("other", 1, 0, [9]))
    backlog.add(ended())
    both = [Tokens("r", 1, 0, [1, 3, 5]), Tokens("r", 1, 1, [2, 4])]
    assert backlog.frames(2) == both
    assert len(backlog) == 4
    backlog.drop(2)
    backlog.add(Tokens("r", 1, 0, [6]))
    assert backlog.take() == [Tokens("other", 1, 0, [9]), ended(), Tokens("r", 1, 0, [6])]
    assert backlog.take() == []
