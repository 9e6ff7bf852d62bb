"""Answers that are too long to be passed on: what the client asked for, so nobody else may feel it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from gateway.inference import dispatch
from gateway.replicas.breaker import FAILURES_TO_OPEN
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.test_walk import ask, post
from tests.gateway.inference.upstream import Upstream


@pytest.mark.parametrize("stream", [True, False])
async def test_a_too_long_answer_is_metered_not_repeated_and_blames_no_replica(
    make_worker: Callable[..., Awaitable[Worker]],
    upstream: Upstream,
    second: Upstream,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    monkeypatch.setattr(dispatch, "MAX_UNARY_BYTES", 1024 * 1024)
    worker = await make_worker(upstream, second)
    upstream.script.words = second.script.words = ["a" * (9 * 1024 * 1024)]
    times = 2 * FAILURES_TO_OPEN
    for _ in range(times):
        status, _, raw = await post(http, worker, ask(stream=stream))
        assert status == 400  # nothing was sent before
        assert b'"answer_too_long"' in raw
        assert b"[DONE]" not in raw
    assert upstream.requests + second.requests == times
    assert all(replica.usable for replica in worker.registry.all)
    events = worker.events()
    assert len(events) == times
    assert all(event.billed_prompt_tokens == 7 and event.billed_completion_tokens == 1 for event in events)
    await worker.settled()
