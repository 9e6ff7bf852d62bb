"""The walk over a real socket: what the client sees, what the engine was asked, what was metered and given
back."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.errors import ApiError
from gateway.inference.client import ClientPatience
from gateway.inference.dispatch import Patience
from tests.gateway.inference.conftest import ADAPTER, BASE_NAME, Worker, cut_receipt, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
CHAT = "/v1/chat/completions"


def ask(stream: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "pirate", "messages": [{"role": "user", "content": "Hé"}], "stream": stream, **more}


async def post(
    http: aiohttp.ClientSession, worker: Worker, body: Any, path: str = CHAT
) -> tuple[int, Any, Any]:
    data = io.BytesIO(json.dumps(body, ensure_ascii=False).encode())
    async with http.post(worker.url + path, data=data) as answer:
        raw = await answer.read()
        return answer.status, answer.headers, raw


async def test_a_unary_answer_passes_through_byte_for_byte(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    status, headers, raw = await post(http, worker, ask())
    assert status == 200
    assert json.loads(raw)["choices"][0]["message"]["content"] == "Hé" + "llo" + " 世界!"
    seen = upstream.only()
    assert json.loads(seen.body) == ask()
    assert seen.headers["x-motet-artefact"] == ADAPTER
    assert seen.headers["x-motet-owner"] == seen.headers["x-motet-tenant"] == str(worker.keys.now.tenant)
    assert seen.headers["x-motet-version"] == "pirate@3"
    assert seen.headers["x-motet-max-tokens"] == "1024"
    assert headers["x-request-id"] == seen.request
    assert (headers["x-motet-adapter"], headers["x-motet-version"], headers["x-motet-digest"]) == (
        "pirate",
        "3",
        ADAPTER,
    )
    assert headers["x-motet-default-max-tokens"] == "1024"
    assert headers["x-ratelimit-limit-tokens"] == "100000000"
    assert int(headers["openai-processing-ms"]) >= 0
    assert (headers["x-motet-tier"], headers["x-motet-load-ms"]) == ("base", "0")
    assert int(headers["x-motet-queue-ms"]) >= 0
    assert not any(name.lower().startswith("x-motet-trailer") for name in headers)
    (event,) = worker.events()  # on disk before the client saw the end
    assert (event.prompt_tokens, event.completion_tokens, event.billed_completion_tokens) == (7, 4, 4)
    assert (event.outcome, event.adapter_name, event.adapter_version) == ("finished", "pirate", 3)
    await worker.settled()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("chunk_bytes", [None, 1, 7])
async def test_a_stream_passes_through_however_it_is_cut(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, newline: str, chunk_bytes: int | None
) -> None:
    upstream.script.newline, upstream.script.chunk_bytes = newline, chunk_bytes
    status, headers, raw = await post(http, worker, ask(stream=True))
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")
    assert int(headers["x-motet-queue-ms"]) >= 0
    assert "x-motet-tier" not in headers  # not known yet
    assert b"motet {" not in raw
    frames = cut_receipt(raw)[0].decode().split(newline * 2)
    assert frames[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Héllo 世界!"
    (event,) = worker.events()
    assert event.completion_tokens == 4
    await worker.settled()


async def test_the_place_is_free_before_the_next_call(worker: Worker, http: aiohttp.ClientSession) -> None:
    worker.limit(max_parallel=1)
    for stream in (True, False) * 10:
        status, _, _ = await post(http, worker, ask(stream=stream))
        assert status == 200
    await worker.settled()


async def test_a_stream_cut_by_its_replica_ends_with_an_error_and_no_done(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.cut_after = 2
    status, _, raw = await post(http, worker, ask(stream=True))
    assert status == 200
    assert b"[DONE]" not in raw
    assert (
        json.loads(raw.decode().split("\n\n")[-2].removeprefix("data: "))["error"]["code"] == "upstream_error"
    )
    (event,) = worker.events()
    assert (
        event.outcome,
        event.completion_tokens,
        event.billed_prompt_tokens,
        event.billed_completion_tokens,
    ) == ("failed", 2, 0, 0)
    await worker.settled()


async def test_the_engines_own_error_goes_through_and_bills_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.fail_after = 2
    _, _, raw = await post(http, worker, ask(stream=True))
    assert raw.count(b'"error"') == 1
    assert b"[DONE]" not in raw
    (event,) = worker.events()
    assert (event.outcome, event.completion_tokens, event.billed_completion_tokens) == ("core_failed", 2, 0)
    await worker.settled()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_pays_for_what_was_computed(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.stall_after = 3
    async with asyncio.timeout(5):
        if stream:
            async with http.post(worker.url + CHAT, json=ask(stream=True)) as answer:
                await answer.content.readany()
                answer.close()
        else:
            with pytest.raises(TimeoutError):
                await http.post(worker.url + CHAT, json=ask(), timeout=aiohttp.ClientTimeout(total=0.3))
        seen = upstream.only()
        await seen.aborted.wait()
    await worker.settled()
    (event,) = worker.events()
    assert (event.outcome, event.completion_tokens, event.billed_completion_tokens) == (
        "aborted",
        seen.generated,
        seen.generated,
    )
    assert event.billed_prompt_tokens == 7


async def test_a_client_that_leaves_while_it_waits_costs_nothing(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, capacity=1)
    upstream.script.stall_after = 0
    first = asyncio.create_task(post(http, worker, ask()))
    await until(lambda: upstream.seen)
    with pytest.raises(TimeoutError):
        await http.post(worker.url + CHAT, json=ask(), timeout=aiohttp.ClientTimeout(total=0.2))
    await until(lambda: not worker.queue.waiting)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await until(lambda: not worker.queue.running)
    await worker.settled()
    assert len(upstream.seen) == 1
    assert len(worker.events()) == 1


async def test_a_failure_before_the_first_byte_is_tried_again_and_billed_once(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    upstream.script.cut_before = second.script.cut_before = False
    upstream.script.fail_first = second.script.fail_first = 1
    for stream in (True, False):
        status, _, _ = await post(http, worker, ask(stream=stream))
        assert status == 200
    events = worker.events()
    by_request: dict[Any, list[Any]] = {}
    for event in events:
        by_request.setdefault(event.request_id, []).append(event)
    assert len(by_request) == 2
    for attempts in by_request.values():
        assert len({a.attempt for a in attempts}) == len(attempts)
        assert [a.outcome for a in sorted(attempts, key=lambda a: a.attempt)][-1] == "finished"
        assert sum(a.billed_completion_tokens > 0 for a in attempts) == 1
    assert len(events) == 4
    await worker.settled()


async def test_after_the_first_byte_nothing_is_tried_again(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    upstream.script.cut_after = second.script.cut_after = 1
    await post(http, worker, ask(stream=True))
    assert upstream.requests + second.requests == 1
    await worker.settled()


async def test_a_full_replica_sends_the_request_back_to_the_queue(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.busy = 3
    status, _, _ = await post(http, worker, ask())
    assert status == 200
    assert upstream.requests == 4
    assert upstream.only().attempt == 1
    assert len(worker.events()) == 1
    await worker.settled()


async def test_what_the_client_did_wrong_is_answered_once_and_opens_no_breaker(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    wrong = {"message": "No.", "type": "invalid_request_error", "param": "stop", "code": "invalid_value"}
    upstream.script.refuse = (400, wrong)
    for stream in (True, False) * 10:
        status, _, raw = await post(http, worker, ask(stream=stream))
        assert (status, json.loads(raw)["error"]) == (400, wrong)
    assert upstream.requests == 20
    assert worker.registry.all[0].breaker.admits
    assert all(event.billed_prompt_tokens == 0 and event.outcome == "refused" for event in worker.events())
    await worker.settled()


async def test_a_dead_replica_is_a_503_and_holds_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.cut_before = True
    status, headers, raw = await post(http, worker, ask(stream=True))
    assert status == 503
    assert json.loads(raw)["error"]["type"] == "service_unavailable_error"
    assert int(headers["retry-after"]) >= 1
    assert int(headers["retry-after-ms"]) >= 1
    assert upstream.requests == 3
    assert all(event.billed_prompt_tokens == 0 for event in worker.events())
    await worker.settled()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "pirate"}, 400, "missing_required_parameter"),
        (ask(api_base="http://x"), 400, "unknown_parameter"),
        (ask(model="unknown"), 404, "model_not_found"),
        (ask(max_tokens=10_000_000), 400, "context_length_exceeded"),
        (ask(messages=[{"role": "user", "content": "a b " * 1_000_000}]), 400, "context_length_exceeded"),
    ],
)
async def test_bad_requests_never_reach_the_engine(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, body: Any, status: int, code: str
) -> None:
    got, headers, raw = await post(http, worker, body)
    assert (got, json.loads(raw)["error"]["code"]) == (status, code)
    assert "x-ratelimit-limit-requests" in headers
    assert upstream.requests == 0
    assert worker.events() == []
    await worker.settled()


async def test_a_body_over_the_cap_is_refused_unread(worker: Worker, http: aiohttp.ClientSession) -> None:
    async with http.post(worker.url + CHAT, data=io.BytesIO(b"x" * (9 * 1024 * 1024))) as answer:
        assert answer.status == 413
    await worker.settled()


async def test_limits_answer_429_with_what_was_needed(worker: Worker, http: aiohttp.ClientSession) -> None:
    worker.limit(tokens_per_minute=2000)
    assert (await post(http, worker, ask(max_tokens=1900)))[0] == 200
    answers = await asyncio.gather(*(post(http, worker, ask(max_tokens=1900)) for _ in range(8)))
    refused = [(headers, json.loads(raw)) for status, headers, raw in answers if status == 429]
    assert refused
    headers, body = refused[0]
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert "limit 2000, needed" in body["error"]["message"]
    assert headers["x-ratelimit-limit-tokens"] == "2000"
    assert int(headers["retry-after-ms"]) > 0
    await worker.settled()


async def test_keep_alive_comments_and_errors_after_them(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    patience = Patience(10, 0.3, 0.3, 1)
    worker = await make_worker(upstream, patience=patience, client=ClientPatience(keep_alive_s=0.05))
    upstream.script.stall_after = 0
    status, _, raw = await post(http, worker, ask(stream=True))
    assert status == 200
    assert raw.startswith(b": ka\n\n: ka\n\n")
    assert b'data: {"error"' in raw
    assert b"[DONE]" not in raw
    await worker.settled()


async def test_done_without_a_trailer_asks_for_the_record(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.trailer = False
    _, _, raw = await post(http, worker, ask(stream=True))
    assert raw.endswith(b"data: [DONE]\n\n")
    (event,) = worker.events()
    assert (event.outcome, event.billed_completion_tokens) == ("finished", 4)
    await worker.settled()


async def test_a_moved_epoch_reads_the_tenant_again(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    tenant = worker.keys.now.tenant
    await worker.redis.set(f"{{{tenant}}}:epoch", 5)
    assert (await post(http, worker, ask()))[0] == 200
    assert worker.keys.invalidated >= 1
    await worker.settled()


async def test_the_prefetch_hint_names_the_owner(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    await post(http, worker, ask())
    await until(lambda: upstream.prefetched)
    assert upstream.prefetched == [ADAPTER]
    await worker.settled()


async def test_the_hint_goes_out_before_limits_are_asked_and_once(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker.limit(tokens_per_minute=2000)
    assert (await post(http, worker, ask(max_tokens=2500, model=BASE_NAME)))[0] == 200  # all that it holds
    assert upstream.prefetched == []
    assert [(await post(http, worker, ask(max_tokens=2500)))[0] for _ in range(2)] == [429] * 2
    await until(lambda: upstream.prefetched)
    await worker.settled()
    assert upstream.prefetched == [ADAPTER]


async def test_the_deep_probe_is_a_real_completion_that_bills_nobody(
    worker: Worker, upstream: Upstream
) -> None:
    await worker.probe()
    assert upstream.only().headers["x-motet-purpose"] == "probe"
    (event,) = worker.events()
    assert (event.purpose, event.billed_prompt_tokens, event.prompt_tokens) == ("probe", 0, 7)
    upstream.script.cut_before = True
    with pytest.raises(ApiError):
        await worker.probe()
    await worker.settled()
