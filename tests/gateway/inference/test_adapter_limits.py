"""The limits of an adapter: known once the model is, so met after the body is read and before the queue."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.aliases.weighted import Sticky
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.limits.levels import plan_of, today
from gateway.principal import CacheMode, CachePolicy, Limits, Principal, TenantId
from tests.gateway.inference.conftest import ADAPTER, Worker
from tests.gateway.inference.upstream import Upstream


class Limited:
    """A catalog whose one adapter lets two requests a minute through."""

    async def resolve(self, principal: Principal, model: str, sticky: Sticky | None = None) -> Resolved:
        limits = Limits(requests_per_minute=2, max_parallel=5)
        return Resolved(model, "base-id", ResolvedAdapter("pirate", 3, ADAPTER, principal.tenant, limits))


@pytest.fixture
def limited(worker: Worker) -> Worker:
    worker.walk._parts = replace(worker.walk._parts, catalog=Limited())
    return worker


def ask(**more: Any) -> dict[str, Any]:
    return {"model": "pirate", "messages": [{"role": "user", "content": "Hé"}], "temperature": 0, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cached", [False, True])
async def test_past_an_adapters_limit_nothing_waits_and_nothing_is_given(
    limited: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool, cached: bool
) -> None:
    """A kept answer takes a request of it too."""
    if cached:
        policy = CachePolicy(CacheMode.GREEDY, 1, age_s=60)
        limited.keys.now = replace(limited.keys.now, response_cache=policy)
    seen = []
    for _ in range(3):
        async with http.post(limited.url + "/v1/chat/completions", json=ask(stream=stream)) as answer:
            raw = await answer.read()
            seen.append((answer.status, answer.headers["x-ratelimit-remaining-requests"]))
            told = answer.headers
    assert seen == [(200, "1"), (200, "0"), (429, "0")]
    assert upstream.requests == (1 if cached else 2)
    error = json.loads(raw)["error"]
    assert error["limit"]["limit_id"] == "adapter.requests_per_minute"
    assert (error["limit"]["level"], error["limit"]["limit"], error["limit"]["needed"]) == ("adapter", 2, 1)
    assert 0 < int(told["retry-after-ms"]) <= 30_000
    assert int(told["retry-after"]) >= 1
    assert told["x-ratelimit-limit-requests"] == "2"
    assert [event.source for event in limited.events()] == ["engine", "cache" if cached else "engine"]
    event = list(limited.recorder.ring)[-1]
    assert (event.at_step, event.refused_by, event.queue_ms) == (
        "limits",
        "adapter.requests_per_minute",
        None,
    )
    await limited.settled()


def test_adapters_of_two_owners_with_one_name_share_no_limit(worker: Worker) -> None:
    principal = worker.keys.now
    limits = Limits(requests_per_minute=2, max_parallel=5)
    own, other = (
        plan_of(principal, today()).of_model(
            Resolved("pirate", "base-id", ResolvedAdapter("pirate", 3, ADAPTER, owner, limits))
        )
        for owner in (principal.tenant, TenantId(uuid4()))
    )
    assert not {each.key for each in own.buckets[-1:]} & {each.key for each in other.buckets[-1:]}
    assert not {each.key for each in own.leases} & {each.key for each in other.leases}
