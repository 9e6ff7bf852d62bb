"""What a request takes from its tokens-per-minute bucket in the end: what is billed, not what it reserved."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.inference.ending import Cause, Record, _used
from gateway.replicas.driver import Trailer
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import Upstream

TOKENS_PER_MINUTE = 2_000
PERIOD_US = 60_000_000
SLACK = 8
"""Tokens that refill in a quarter of a second, while the request is on its way."""


class Meter:
    """The key's bucket, as far as requests since its making have filled it."""

    def __init__(self, worker: Worker) -> None:
        worker.limit(tokens_per_minute=TOKENS_PER_MINUTE)
        principal = worker.keys.now
        self._redis = worker.redis
        self._bucket = f"{{{principal.tenant}}}:key:{principal.key_id}:tokens"
        self._began_us = 0

    async def begin(self) -> Meter:
        self._began_us = await self._now_us()
        return self

    async def taken(self) -> float:
        full_at = await self._redis.get(self._bucket)
        if full_at is None:
            return 0.0
        return (int(full_at) - self._began_us) * TOKENS_PER_MINUTE / PERIOD_US

    async def _now_us(self) -> int:
        seconds, microseconds = await self._redis.time()
        return int(seconds) * 1_000_000 + int(microseconds)


def body(**more: Any) -> bytes:
    messages = [{"role": "user", "content": "Hé"}]
    return json.dumps({"model": "pirate", "messages": messages, "max_tokens": 400, **more}).encode()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_finished_request_keeps_what_it_used(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    meter = await Meter(worker).begin()
    async with http.post(worker.url + "/v1/chat/completions", data=body(stream=stream)) as answer:
        assert answer.status == 200
        await answer.read()
    used = upstream.only().prompt + upstream.only().generated
    assert used <= await meter.taken() < used + SLACK
    await worker.settled()


async def test_a_request_keeps_all_it_may_use_while_it_runs_and_what_it_used_when_its_client_left(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.stall_after = 3
    meter = await Meter(worker).begin()
    async with http.post(worker.url + "/v1/chat/completions", data=body(stream=True, n=3)) as answer:
        await answer.content.readany()
        assert 3 * 400 < await meter.taken() < 3 * 400 + 50  # the prompt once, and each choice at its longest
    await until(worker.events)
    await worker.settled()
    used = 7 + upstream.only().generated
    assert used <= await meter.taken() < used + SLACK


@pytest.mark.parametrize("stream", [True, False])
async def test_what_failed_on_our_side_takes_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.cut_after = 2
    meter = await Meter(worker).begin()
    async with http.post(worker.url + "/v1/chat/completions", data=body(stream=stream)) as answer:
        await answer.read()
    await worker.settled()
    assert await meter.taken() < SLACK


@pytest.mark.parametrize(("cause", "all_of_it"), [(Cause.CLIENT_LEFT, True), (Cause.FAILED, False)])
async def test_a_count_that_nobody_can_say(worker: Worker, cause: Cause, all_of_it: bool) -> None:
    call = worker.probe._call()
    assert _used(call, Record(None, known=False, cause=cause)).tokens.total == (
        call.most_tokens if all_of_it else 0
    )


@pytest.mark.parametrize(("said", "outcome"), [("not_finite", "not_finite"), ("core_failed", "failed")])
def test_what_is_wrong_with_an_adapter_stands_in_the_row_of_each_try(said: str, outcome: str) -> None:
    """A replica that was given up for another one, too: rollouts read it."""
    told = {"usage": {"prompt": 3, "completion": 0, "cached": 0}, "timings": {}, "outcome": said}
    record = Record(msgspec.convert(told, Trailer), known=True, cause=Cause.FAILED)
    assert (record.outcome, record.billed) == (outcome, False)
