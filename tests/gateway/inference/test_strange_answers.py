"""What answers at a replica's address may be no engine: none of its words reach a client."""

from __future__ import annotations

import json

import aiohttp
import pytest

from gateway.replicas.breaker import FAILURES_TO_OPEN
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.test_walk import MakeWorker, ask, post
from tests.gateway.inference.upstream import Upstream

PAGE = ("text/html", b"<html>\n\n<p>Welcome to the proxy</p>\n\n</html>\n\n")
WITHOUT_END = ("application/json", b'{"choices": []}')


@pytest.mark.parametrize(("stream", "said"), [(True, PAGE), (False, PAGE), (False, WITHOUT_END)])
async def test_a_200_that_is_no_answer_of_an_engine_is_a_failure(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool, said: tuple[str, bytes]
) -> None:
    upstream.script.stranger = said
    for _ in range(FAILURES_TO_OPEN):
        status, headers, raw = await post(http, worker, ask(stream=stream))
        assert status == 503
        assert json.loads(raw)["error"]["code"] in {"replica_failed", "no_replica"}
        assert int(headers["retry-after-ms"]) >= 1
    assert not worker.registry.all[0].breaker.admits
    assert {event.outcome for event in worker.events()} == {"failed"}
    assert all(event.billed_prompt_tokens == 0 for event in worker.events())
    await worker.settled()


async def test_another_replica_answers_instead(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    upstream.script.stranger = PAGE
    for stream in (True, False) * 3:
        status, _, raw = await post(http, worker, ask(stream=stream))
        assert (status, b"proxy" in raw) == (200, False)
    await worker.settled()
