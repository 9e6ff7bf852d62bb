"""openai-python against the walk: however the bytes are cut, and however the stream ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import openai
import pytest

from gateway.inference.client import ClientPatience
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
TEXT = "Héllo 世界!"


@pytest.fixture
async def sdk(worker: Worker) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=worker.url + "/v1", api_key="key", max_retries=0) as client:
        yield client


async def read(sdk: openai.AsyncOpenAI) -> str:
    stream = await sdk.chat.completions.create(
        model="pirate", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("chunk_bytes", [1, 3, None])
async def test_streams_read_the_same(
    sdk: openai.AsyncOpenAI, upstream: Upstream, newline: str, chunk_bytes: int | None
) -> None:
    upstream.script.newline, upstream.script.chunk_bytes = newline, chunk_bytes
    assert await read(sdk) == TEXT


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
async def test_a_cut_stream_raises(
    sdk: openai.AsyncOpenAI, worker: Worker, upstream: Upstream, cut: int
) -> None:
    upstream.script.cut_after = cut
    with pytest.raises(openai.APIError, match="broke off"):
        await read(sdk)
    await worker.settled()


async def test_what_breaks_before_its_first_byte_has_a_status(
    sdk: openai.AsyncOpenAI, worker: Worker, upstream: Upstream
) -> None:
    """Not a stream that ends."""
    upstream.script.cut_after = 0
    with pytest.raises(openai.InternalServerError) as failed:
        await read(sdk)
    assert (failed.value.status_code, failed.value.code) == (503, "replica_failed")
    upstream.script.cut_after = None
    upstream.script.refuse = (400, {"message": "No.", "type": "invalid_request_error", "code": "no"})
    with pytest.raises(openai.BadRequestError, match="No") as refused:
        await read(sdk)
    assert refused.value.code == "no"
    await worker.settled()


async def test_an_error_within_a_stream_is_raised_with_its_words(
    sdk: openai.AsyncOpenAI, worker: Worker, upstream: Upstream
) -> None:
    upstream.script.fail_after = 2
    with pytest.raises(openai.APIError, match="The engine failed"):
        await read(sdk)
    await worker.settled()


async def test_comments_do_not_disturb(make_worker: MakeWorker, upstream: Upstream) -> None:
    """Every 10 ms, between bytes that come one at a time."""
    worker = await make_worker(upstream, client=ClientPatience(keep_alive_s=0.01))
    upstream.script.pause_s, upstream.script.chunk_bytes = 0.05, 1
    async with openai.AsyncOpenAI(base_url=worker.url + "/v1", api_key="key", max_retries=0) as sdk:
        assert await read(sdk) == TEXT


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("asked", [True, False])
async def test_usage_is_told_once_and_last_to_who_asks(
    sdk: openai.AsyncOpenAI, upstream: Upstream, n: int, asked: bool
) -> None:
    upstream.script.chunk_bytes = 5
    more = {"stream_options": {"include_usage": True}} if asked else None
    stream = await sdk.chat.completions.create(
        model="pirate", messages=[{"role": "user", "content": "Hi"}], stream=True, n=n, extra_body=more
    )
    chunks = [chunk async for chunk in stream]
    told = [chunk for chunk in chunks if chunk.usage is not None]
    assert [chunk.choices for chunk in told] == ([[]] if asked else [])
    if asked:
        assert told == chunks[-1:]
        assert told[0].usage is not None
        assert told[0].usage.completion_tokens == 4 * n
    texts = ["".join(c.choices[0].delta.content or "" for c in chunks if _of(c, index)) for index in range(n)]
    assert texts == [TEXT] * n
    assert [c.choices[0].index for c in chunks if c.choices and c.choices[0].finish_reason] == list(range(n))


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "function_call"])
async def test_why_a_choice_ended_is_passed_on(
    sdk: openai.AsyncOpenAI, upstream: Upstream, reason: str
) -> None:
    upstream.script.finish_reason = reason
    whole = await sdk.chat.completions.create(model="base", messages=[{"role": "user", "content": "Hi"}])
    assert whole.choices[0].finish_reason == reason


def _of(chunk: openai.types.chat.ChatCompletionChunk, index: int) -> bool:
    return bool(chunk.choices) and chunk.choices[0].index == index


async def test_errors_have_their_class(sdk: openai.AsyncOpenAI, worker: Worker) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.completions.create(model="unknown", prompt="x")
    assert missing.value.request_id
    worker.limit(requests_per_minute=1)
    await sdk.completions.create(model="base", prompt="x")
    with pytest.raises(openai.RateLimitError) as limited:
        await sdk.completions.create(model="base", prompt="x")
    assert limited.value.code == "rate_limit_exceeded"
