"""A stream that breaks off counts against its replica, though it began well."""

from __future__ import annotations

import aiohttp

from gateway.replicas.breaker import FAILURES_TO_OPEN, OPEN_S, Breaker
from gateway.replicas.registry import LONGEST_AWAY_S, PROBE_S
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
    status, headers, _ = await post(http, worker, ask(stream=True))
    assert (status, headers["retry-after-ms"]) == (503, str(round((OPEN_S + PROBE_S) * 1000)))
    assert upstream.requests == FAILURES_TO_OPEN  # what the breaker kept away reached nobody

    now, upstream.script.cut_after = OPEN_S, None
    assert b"[DONE]" in (await post(http, worker, ask(stream=True)))[2]
    assert replica.breaker.admits
    await worker.settled()


async def test_where_no_replica_is_up_a_client_waits_as_long_as_that_has_been_so(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.ready = False
    worker.registry.all[0].healthy = False
    worker.registry.note_change()
    began = worker.registry._none_since
    assert began is not None
    for away_s, told_s in ((0.0, PROBE_S), (7.0, 7.0), (3600.0, LONGEST_AWAY_S)):
        worker.registry._none_since = began - away_s
        status, headers, _ = await post(http, worker, ask())
        assert (status, told_s * 1000 <= int(headers["retry-after-ms"])) == (503, True)
        assert int(headers["retry-after-ms"]) <= LONGEST_AWAY_S * 1000
    await worker.settled()
