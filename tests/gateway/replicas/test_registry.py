from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.replicas.breaker import FAILURES_TO_OPEN
from gateway.replicas.driver import ReplicaView, UpstreamFailed
from gateway.replicas.drivers.motet import MotetDriver, make_session
from gateway.replicas.registry import Load, Registry, Replica
from tests.gateway.inference.upstream import TOKEN, Upstream


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with make_session(connect_timeout_s=1, max_connections=8) as session:
        yield session


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream().running() as running:
        yield running


def replica(session: aiohttp.ClientSession, name: str, view: ReplicaView) -> Replica:
    return Replica(name, MotetDriver(session, name, TOKEN), healthy=True, view=view)


async def test_residency_first_then_load(session: aiohttp.ClientSession) -> None:
    resident = replica(session, "http://a", ReplicaView(device=frozenset({"x"}), waiting_tokens=500))
    idle = replica(session, "http://b", ReplicaView())
    registry = Registry([resident, idle])
    assert registry.choose("x") is resident
    assert registry.choose("y") is idle
    load = Load(resident, 5_000)
    assert registry.choose("x") is idle
    load.release()
    load.release()
    assert (resident.in_flight, resident.in_flight_tokens) == (0, 0)
    assert registry.choose("x", tried=[resident]) is idle
    assert registry.choose("x", tried=[resident, idle]) is resident


async def test_an_open_breaker_and_bad_health_take_a_replica_out(session: aiohttp.ClientSession) -> None:
    only = replica(session, "http://a", ReplicaView())
    registry = Registry([only])
    for _ in range(FAILURES_TO_OPEN):
        only.breaker.fail()
    assert registry.choose(None) is None
    only.breaker.succeed()
    only.healthy = False
    assert registry.choose(None) is None


async def test_polling_follows_readiness_and_tells_the_number(
    session: aiohttp.ClientSession, upstream: Upstream
) -> None:
    heard: list[int] = []
    watched = Replica(upstream.url, MotetDriver(session, upstream.url, TOKEN))
    dead = Replica("http://127.0.0.1:1", MotetDriver(session, "http://127.0.0.1:1", TOKEN))
    registry = Registry([watched, dead], heard.append)
    for ready in (True, False, True):
        upstream.ready = ready
        await registry.poll_once()
    assert heard == [1, 0, 1]
    assert not dead.healthy


async def test_a_replica_that_is_not_there_was_sent_nothing(session: aiohttp.ClientSession) -> None:
    driver = MotetDriver(session, "http://127.0.0.1:1", TOKEN)
    with pytest.raises(UpstreamFailed) as failed:
        await driver.open("/v1/completions", b"{}", {}, 1.0)
    assert not failed.value.sent


async def test_a_replica_that_takes_no_connection_was_sent_nothing() -> None:
    """A listener whose queue is full drops what comes, as a machine that is gone does."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with make_session(connect_timeout_s=0.2, max_connections=8) as session:
            driver = MotetDriver(session, f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)
            with pytest.raises(UpstreamFailed) as failed:
                await driver.open("/v1/completions", b"{}", {}, 30.0)
    assert not failed.value.sent


async def test_connections_are_probed_while_they_are_silent(
    session: aiohttp.ClientSession, upstream: Upstream
) -> None:
    upstream.script.stall_after = 0
    headers = {"x-motet-request": "r", "x-motet-attempt": "1"}
    opened = await MotetDriver(session, upstream.url, TOKEN).open(
        "/v1/completions", b'{"stream": true, "model": "m"}', headers, 5.0
    )
    connection = opened._response.connection
    assert connection is not None
    assert connection.transport is not None
    probed = connection.transport.get_extra_info("socket")
    assert probed.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await opened.close()


async def test_control_calls(session: aiohttp.ClientSession, upstream: Upstream) -> None:
    driver = MotetDriver(session, upstream.url, TOKEN)
    assert await driver.abort("unknown", 1) is None
    await driver.prefetch("a" * 64, "owner")
    assert upstream.prefetched == ["a" * 64]
    await driver.retire("a" * 64, "owner")
    assert upstream.retired == [("a" * 64, "owner")]
    page = await driver.journal(0, 10)
    assert (page.lines, page.next) == ([], 0)


async def test_nobody_is_refused_on_old_news(session: aiohttp.ClientSession, upstream: Upstream) -> None:
    """The poll came before the replica was up; another worker has told the client since that all is well."""
    up = Replica(upstream.url, MotetDriver(session, upstream.url, TOKEN))
    registry = Registry([up])
    assert registry.choose(None) is None
    assert await asyncio.gather(*(registry.choose_now(None) for _ in range(8))) == [up] * 8


async def test_a_replica_that_is_down_is_asked_once_for_all(session: aiohttp.ClientSession) -> None:
    asked = 0

    class Down(MotetDriver):
        async def ready(self) -> bool:
            nonlocal asked
            asked += 1
            return False

    registry = Registry([Replica("http://a", Down(session, "http://a", TOKEN))])
    assert await asyncio.gather(*(registry.choose_now(None) for _ in range(8))) == [None] * 8
    assert asked == 1
