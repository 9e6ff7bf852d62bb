"""What a client says of its patience, what it can't say of its class, and what the queue's line keeps of
it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.errors import BadRequest
from gateway.inference.deadline import deadline_s
from gateway.principal import TenantId
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.test_fairness import body
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]


def scope(**headers: str) -> Any:
    return {"headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"x_motet_deadline_ms": "1500"}, 1.5),
        ({"x_stainless_read_timeout": "600"}, 600.0),
        ({"x_stainless_read_timeout": "0.25"}, 0.25),
        ({"x_stainless_read_timeout": "600", "x_motet_deadline_ms": "20"}, 0.02),
        ({"x_stainless_read_timeout": "None"}, None),
        ({"x_stainless_read_timeout": "nan"}, None),
        ({"x_stainless_read_timeout": "-1"}, None),
        ({"x_motet_deadline_ms": "9999999999"}, 86_400.0),
    ],
)
def test_a_deadline_is_read_from_our_header_or_the_sdks(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert deadline_s(scope(**headers)) == seconds


@pytest.mark.parametrize("value", ["", "0", "-5", "1.5", "1e3", "soon", "٣", "1" * 11])
def test_a_deadline_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(BadRequest) as refused:
        deadline_s(scope(x_motet_deadline_ms=value))
    assert refused.value.param == "x-motet-deadline-ms"


async def ask(http: aiohttp.ClientSession, worker: Worker, **headers: str) -> tuple[int, Any]:
    url = worker.url + "/v1/chat/completions"
    async with http.post(url, data=body(stream=False), headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_one_whose_deadline_ends_in_the_queue_reaches_no_replica(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, capacity=1)
    upstream.script.stall_after = 0
    holder = asyncio.create_task(ask(http, worker))
    await until(lambda: upstream.seen)
    status, said = await ask(http, worker, **{"x-motet-deadline-ms": "60"})
    assert (status, said["error"]["code"]) == (504, "queue_timeout")
    assert upstream.requests == 1
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    await worker.settled()


async def test_the_engine_is_told_what_is_left_of_the_clients_time(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    assert (await ask(http, worker, **{"x-stainless-read-timeout": "2"}))[0] == 200
    assert 1_000 < int(upstream.only().headers["x-motet-deadline-ms"]) <= 1_900
    await worker.settled()


async def test_a_bad_deadline_is_a_400_and_holds_nothing(worker: Worker, http: aiohttp.ClientSession) -> None:
    status, said = await ask(http, worker, **{"x-motet-deadline-ms": "soon"})
    assert (status, said["error"]["param"]) == (400, "x-motet-deadline-ms")
    await worker.settled()


async def test_a_client_cannot_raise_its_class(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker.keys.now = replace(worker.keys.now, tenant=TenantId(uuid4()), service_class="batch")
    assert (await ask(http, worker, **{"x-motet-class": "interactive"}))[0] == 200
    assert upstream.only().headers["x-motet-class"] == "batch"
    line = await worker.redis.hgetall(f"{{{worker.keys.now.tenant}}}:line:queue:batch")
    await worker.settled()
    assert line


async def test_a_tenants_line_keeps_what_was_used(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """7 tokens of the prompt and 4 of the answer; and the load, since the adapter was nowhere."""
    for _ in range(2):
        assert (await ask(http, worker))[0] == 200
    await worker.settled()
    line = await worker.redis.hgetall(f"{{{worker.keys.now.tenant}}}:line:queue:standard")
    assert float(line[b"finish"]) == 2 * (7 + 4 + 2_000)
