"""Receipts on answers: whole ones, streams and kept ones; never before the row is durable, and the same as
the ledger's row gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest

from gateway.db import Database
from gateway.principal import CacheMode, CachePolicy
from gateway.receipts.keys import ReceiptKeys, key_that_signed
from gateway.receipts.receipt import HEADER, parse
from gateway.usage.event import UsageEvent
from gateway.usage.journal import JournalFailed
from gateway.usage.repository import attempts_of, insert_events
from tests.gateway.inference.conftest import ADAPTER, DATA_KEYS, Worker, cut_receipt
from tests.gateway.inference.upstream import Upstream

CHAT = "/v1/chat/completions"
KEYS = ReceiptKeys(DATA_KEYS)


def ask(stream: bool = False, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hé"}]
    return {"model": "pirate", "messages": messages, "stream": stream, "temperature": 0, **more}


async def post(
    http: aiohttp.ClientSession, worker: Worker, body: Any, **headers: str
) -> tuple[Any, bytes, str | None]:
    """Headers, the answer, and its receipt, wherever that stood."""
    async with http.post(worker.url + CHAT, json=body, headers=headers) as answer:
        raw, comment = cut_receipt(await answer.read())
        return answer.headers, raw, answer.headers.get(HEADER, comment)


def signed(worker: Worker, text: str | None) -> str:
    assert text is not None
    assert key_that_signed(parse(text), KEYS.of(worker.keys.now.tenant)) is not None
    return text


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_its_receipt_and_the_ledger_gives_the_same(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, db: Database, stream: bool
) -> None:
    headers, _, text = await post(http, worker, ask(stream))
    receipt = parse(signed(worker, text))
    assert str(receipt.request_id) == headers["x-request-id"]
    assert (receipt.is_adapter, receipt.model, receipt.source) == (True, ADAPTER, "engine")
    assert (receipt.input_tokens, receipt.cached_tokens, receipt.output_tokens) == (7, 0, 4)
    assert (receipt.outcome, receipt.price_book_version) == ("finished", 7)
    assert (HEADER in headers) == (not stream)
    events = worker.events()
    async with db.system_session() as session:
        await insert_events(session, events)
    async with db.system_reader() as session:
        (row,) = await attempts_of(session, [receipt.request_id])
    assert KEYS.sign(row) == text
    await worker.settled()


async def test_the_comment_stands_right_before_done(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    async with http.post(worker.url + CHAT, json=ask(stream=True)) as answer:
        *_, comment, done, rest = (await answer.read()).split(b"\n\n")
    assert comment.startswith(b": motet-receipt v=1;request=")
    assert (done, rest) == (b"data: [DONE]", b"")
    await worker.settled()


async def test_the_base_is_named_by_its_id(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    _, _, text = await post(http, worker, ask(model="base"))
    receipt = parse(signed(worker, text))
    assert (receipt.is_adapter, receipt.model) == (False, "base-id")
    await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_kept_answer_has_a_receipt_of_its_own(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    worker.keys.now = replace(worker.keys.now, response_cache=CachePolicy(CacheMode.GREEDY, 1, age_s=60))
    _, computed, first = await post(http, worker, ask(stream))
    headers, kept, second = await post(http, worker, ask(stream))
    assert (computed, headers["x-motet-cache"]) == (kept, "hit")
    receipt = parse(signed(worker, second))
    assert str(receipt.request_id) == headers["x-request-id"] != str(parse(first or "").request_id)
    assert (receipt.source, receipt.input_tokens, receipt.output_tokens) == ("cache", 7, 4)
    assert {KEYS.sign(event) for event in worker.events()} == {first, second}
    await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_replay_has_none_for_its_row_is_the_first_trys(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    key = {"Idempotency-Key": "once"}
    _, first, text = await post(http, worker, ask(stream), **key)
    headers, again, none = await post(http, worker, ask(stream), **key)
    assert (first, none) == (again, None)
    assert headers["x-motet-original-request"] == str(parse(signed(worker, text)).request_id)
    await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_what_broke_off_or_could_not_be_written_down_has_none(
    worker: Worker,
    upstream: Upstream,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    if stream:
        upstream.script.cut_after = 2
        _, raw, text = await post(http, worker, ask(stream=True))
        assert (b"[DONE]" in raw, text) == (False, None)
        await worker.settled()
        upstream.script.cut_after = None

    async def refused(event: UsageEvent) -> None:
        raise JournalFailed("full")

    monkeypatch.setattr(worker.replays.parts.journal, "append", refused)
    _, raw, text = await post(http, worker, ask(stream))
    assert (b"could not be recorded" in raw, text) == (True, None)
    await worker.settled()


async def test_a_retried_attempt_is_told_as_the_one_that_answered(
    make_worker: Callable[..., Awaitable[Worker]],
    upstream: Upstream,
    second: Upstream,
    http: aiohttp.ClientSession,
) -> None:
    worker = await make_worker(upstream, second)
    upstream.script.fail_first = second.script.fail_first = 1
    for stream in (True, False):
        headers, _, text = await post(http, worker, ask(stream))
        rows = [event for event in worker.events() if str(event.request_id) == headers["x-request-id"]]
        (answered,) = [event for event in rows if event.outcome == "finished"]
        assert signed(worker, text) == KEYS.sign(answered)
    assert len(worker.events()) == 4  # both were tried more than once
    await worker.settled()


async def test_openai_python_reads_streams_with_receipts(worker: Worker, upstream: Upstream) -> None:
    async with openai.AsyncOpenAI(base_url=worker.url + "/v1", api_key="key", max_retries=0) as sdk:
        messages: Any = [{"role": "user", "content": "Hi"}]
        stream = await sdk.chat.completions.create(model="pirate", messages=messages, stream=True)
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        raw = await sdk.chat.completions.with_raw_response.create(model="pirate", messages=messages)
    assert said == raw.parse().choices[0].message.content == "Héllo 世界!"
    assert str(parse(signed(worker, raw.headers[HEADER])).request_id) == raw.request_id
    await worker.settled()
