from __future__ import annotations

import asyncio
import threading
import time
from uuid import uuid4

import pytest

from adapters.base import BaseSpec
from adapters.prompt import PromptEncoder
from adapters.refusal import RequestRefused
from adapters.wire import decode_completion
from gateway.inference.counting import INLINE_BYTES, LONG_AT_ONCE, Counter
from gateway.principal import TenantId

TENANT = TenantId(uuid4())


@pytest.fixture
def counter(base_and_encoder: tuple[BaseSpec, PromptEncoder]) -> Counter:
    base, encoder = base_and_encoder
    return Counter(encoder, base.max_model_len, base.vocab_size)


def body(prompt: str) -> bytes:
    return b'{"model": "m", "prompt": "' + prompt.encode() + b'"}'


async def test_what_is_asked_for_must_fit_beside_the_prompt(counter: Counter) -> None:
    request = decode_completion(body(" word" * 1_000))
    counted = await counter.count(request, 5_000, TENANT)
    assert (counted.prompt_tokens, counted.max_tokens, counted.by_default) == (1_000, 1_024, True)
    for asked, fits in ((7_192, True), (7_193, False)):
        more = decode_completion(body(" word" * 1_000)[:-1] + b', "max_tokens": %d}' % asked)
        if fits:
            assert (await counter.count(more, 5_000, TENANT)).max_tokens == asked
        else:
            with pytest.raises(RequestRefused, match="maximum context length"):
                await counter.count(more, 5_000, TENANT)


async def test_characters_without_a_token_are_no_prompt(counter: Counter) -> None:
    with pytest.raises(RequestRefused) as refused:
        await counter.count(decode_completion(body("\\u0004\\u0006")), 40, TENANT)
    assert (refused.value.param, refused.value.code) == ("prompt", "empty_value")


async def test_long_prompts_leave_the_loop_alone_and_are_few_at_a_time(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = decode_completion(body(" word" * 2_000))
    running, most, where = 0, 0, set[int]()

    def slow(_: object) -> tuple[int, tuple[int, ...]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        where.add(threading.get_ident())
        time.sleep(0.02)
        running -= 1
        return 2_000, ()

    monkeypatch.setattr(counter, "_prompt", slow)
    await asyncio.gather(*(counter.count(request, INLINE_BYTES + 1, TENANT) for _ in range(8)))
    assert most == LONG_AT_ONCE
    assert threading.get_ident() not in where


async def test_a_prompt_does_not_wait_for_anothers_crowd(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowded, alone = decode_completion(body("a")), decode_completion(body("b"))
    counted: list[object] = []
    go_on = threading.Event()

    def held(request: object) -> tuple[int, tuple[int, ...]]:
        go_on.wait(5)
        counted.append(request)
        return 2_000, ()

    monkeypatch.setattr(counter, "_prompt", held)
    long = INLINE_BYTES + 1
    crowd = [asyncio.create_task(counter.count(crowded, long, TENANT)) for _ in range(20)]
    await asyncio.sleep(0)
    other = asyncio.create_task(counter.count(alone, long, TenantId(uuid4())))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*crowd, other)
    assert counted.index(alone) <= 2 * LONG_AT_ONCE  # those that ran, and one turn
