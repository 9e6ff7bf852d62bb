"""Many adapters over few slots under load: each answer must be the one that its adapter gives alone."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

PROMPTS = ("Once upon a time", "The weather today is", "My favourite thing about the sea is")
WORDS = ("time", "year", "people", "way", "day", "thing", "world", "life", "hand", "part", "place", "work")
PARTS = ("adapter_config.json", "adapter_model.safetensors")


Answer = tuple[int, ...]
"""The token ids: two texts may be equal where these are not."""


def long_prompt(seed: int, num_words: int) -> str:
    """About a token a word; more than a step's budget is computed in chunks that depend on the crowd."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(num_words))


@dataclass(frozen=True, slots=True)
class Question:
    """Greedy, of a given length, so that only the adapter and the prompt decide the answer."""

    model: str
    prompt: str
    max_tokens: int

    def body(self, *, stream: bool) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
            "return_token_ids": True,
        }


@dataclass(slots=True)
class Churn:
    """What the load came to."""

    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the platform's processes hold, at one moment."""

    rss_bytes: int
    files: int
    threads: int

    @classmethod
    def of(cls, pids: Sequence[int]) -> Footprint:
        found = [process for pid in pids for process in _family(pid)]
        return cls(
            sum(process.memory_info().rss for process in found),
            sum(process.num_fds() for process in found),
            sum(process.num_threads() for process in found),
        )


async def upload_all(client: httpx.AsyncClient, folders: Sequence[Path]) -> list[str]:
    """Uploads each folder under its own name, one after the other."""
    for folder in folders:
        files = {part: (folder / part).read_bytes() for part in PARTS}
        answer = await client.post(f"/v1/adapters/{folder.name}/versions", files=files)
        assert answer.status_code in (200, 201), answer.text
    return [folder.name for folder in folders]


async def answers_alone(client: httpx.AsyncClient, questions: Sequence[Question]) -> dict[Question, Answer]:
    """Each question's answer when nothing else runs."""
    return {question: await _unary(client, question) for question in questions}


async def churn(
    client: httpx.AsyncClient, alone: dict[Question, Answer], *, streams: int, until: float, seed: int = 1
) -> Churn:
    """`streams` clients ask at random until the monotonic time `until`; each answer is compared."""
    outcome = Churn()
    began = time.monotonic()
    asked = sorted(alone, key=repr)
    await asyncio.gather(*(_client(client, alone, asked, outcome, seed + n, until) for n in range(streams)))
    outcome.seconds = time.monotonic() - began
    return outcome


async def _client(
    client: httpx.AsyncClient,
    alone: dict[Question, Answer],
    asked: Sequence[Question],
    outcome: Churn,
    seed: int,
    until: float,
) -> None:
    draw = random.Random(seed)
    while time.monotonic() < until:
        question = draw.choice(asked)
        try:
            answer = await (_stream if draw.random() < 0.8 else _unary)(client, question)
        except (httpx.HTTPError, AssertionError) as error:
            outcome.errors.append(f"{question.model}: {error!r}")
            continue
        outcome.answers += 1
        if answer != alone[question]:
            outcome.wrong.append(
                f"{question.model} {question.prompt[:40]!r}: {answer}, alone {alone[question]}"
            )


async def _unary(client: httpx.AsyncClient, question: Question) -> Answer:
    answer = await client.post("/v1/completions", json=question.body(stream=False))
    assert answer.status_code == 200, answer.text
    return tuple(answer.json()["choices"][0]["token_ids"])


async def _stream(client: httpx.AsyncClient, question: Question) -> Answer:
    tokens: list[int] = []
    ended = False
    async with client.stream("POST", "/v1/completions", json=question.body(stream=True)) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = httpx.Response(200, content=line.removeprefix("data: ")).json()
                assert "error" not in chunk, chunk
                tokens.extend(token for choice in chunk["choices"] for token in choice["token_ids"] or ())
    assert ended, "the stream broke off"
    return tuple(tokens)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]
