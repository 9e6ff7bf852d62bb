"""A stream that breaks off counts against its replica, though it began well."""

from __future__ import annotations

import aiohttp

from gateway.replicas.breaker import FAILURES_TO_OPEN, OPEN_S, Breaker
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.test_walk import ask, post
from tests.gateway.inference.upstream import Upstream


async def test_streams_that_break_off_open_the_breaker_and_one_probe_closes_it(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    now = 0.0
    (replica,) = worker.registry.all
    replica.breaker = Breaker(clock=lambda: now)
    upstream.script.cut_after = 2
    for broken in range(FAILURES_TO_OPEN):
        assert replica.breaker.admits, broken
        assert b"[DONE]" not in (await post(http, worker, ask(stream=True)))[2]
    assert not replica.breaker.admits
    assert (await post(http, worker, ask(stream=True)))[0] == 503
    assert upstream.requests == FAILURES_TO_OPEN  # what the breaker kept away reached nobody

    now, upstream.script.cut_after = OPEN_S, None
    assert b"[DONE]" in (await post(http, worker, ask(stream=True)))[2]
    assert replica.breaker.admits
    await worker.settled()
