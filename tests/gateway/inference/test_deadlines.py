"""No wait without an end: the first token, a silent stream, and what the engine is told of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.inference.dispatch import Patience
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.test_fairness import body, post
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]


async def deadline_of(worker: Worker, upstream: Upstream, http: aiohttp.ClientSession) -> int:
    upstream.seen.clear()
    assert await post(http, worker) == 200
    return int(upstream.only().headers["x-motet-deadline-ms"])


async def test_the_engine_is_told_how_long_the_first_token_may_take(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, patience=Patience(10, 4, 5, 3))
    assert 3_500 < await deadline_of(worker, upstream, http) < 4_000  # it gives up before the gateway does


async def test_a_whole_answer_may_take_longer_than_a_first_token(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, patience=Patience(10, 0.2, 5, 3))
    upstream.script.pause_s = 0.1  # after each of four words
    assert await post(http, worker) == 200
    assert upstream.requests == 1
    await worker.settled()


@pytest.mark.parametrize(("waited_s", "left_s"), [(0, 4.0), (10, 4.0), (11, 3.0), (13.99, 0.05), (99, 0.05)])
def test_waiting_uses_up_the_deadline(waited_s: float, left_s: float) -> None:
    assert Patience(10, 4, 5, 3).first_token_s(waited_s) == pytest.approx(left_s)


async def test_an_attempt_that_the_engine_gave_up_is_a_504_and_bills_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    error: dict[str, Any] = {"message": "too late", "type": "server_error", "param": None, "code": "timeout"}
    upstream.script.refuse = (504, error)
    assert await post(http, worker) == 504
    (event,) = worker.events()
    assert event.billed_prompt_tokens == event.billed_completion_tokens == 0
    await worker.settled()


async def test_a_stream_that_falls_silent_is_given_up_and_bills_nothing(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, patience=Patience(10, 5, 0.5, 3))
    upstream.script.stall_after = 2
    began = time.monotonic()
    async with http.post(worker.url + "/v1/chat/completions", data=body(stream=True)) as answer:
        said = await answer.read()
    assert 0.4 < time.monotonic() - began < 5
    assert b"[DONE]" not in said
    assert said.count(b'"error"') == 1
    assert upstream.only().aborted.is_set()
    (event,) = worker.events()
    assert (event.outcome, event.completion_tokens, event.billed_completion_tokens) == ("failed", 2, 0)
    await worker.settled()
