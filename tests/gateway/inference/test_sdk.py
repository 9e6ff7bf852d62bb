"""openai-python against the walk: however the bytes are cut, and however the stream ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.upstream import Upstream

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


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_a_cut_stream_raises(
    sdk: openai.AsyncOpenAI, worker: Worker, upstream: Upstream, cut: int
) -> None:
    upstream.script.cut_after = cut
    with pytest.raises(openai.APIError, match="broke off"):
        await read(sdk)
    await worker.settled()


async def test_comments_do_not_disturb(
    sdk: openai.AsyncOpenAI, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.inference.client.Client.__init__.__kwdefaults__", {"keep_alive_s": 0.01})
    upstream.script.pause_s = 0.05
    assert await read(sdk) == TEXT


async def test_errors_have_their_class(sdk: openai.AsyncOpenAI, worker: Worker) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.completions.create(model="unknown", prompt="x")
    assert missing.value.request_id
    worker.limit(requests_per_minute=1)
    await sdk.completions.create(model="base", prompt="x")
    with pytest.raises(openai.RateLimitError) as limited:
        await sdk.completions.create(model="base", prompt="x")
    assert limited.value.code == "rate_limit_exceeded"
