"""A load that knows what each answer must be, for runs in which parts of the platform are broken meanwhile.

An answer is whole (and then it is the right one, to the token), or it says that it is not: a typed error, an
error frame without `[DONE]`, or a connection that breaks. Anything else is a lie.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

PROMPTS = ("Tell me about the sea.", "What is two plus two?", "The printer is on fire.")
NO_END = "no_end"
HONEST_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Question:
    """Greedy and of a given length, so that a shorter answer is the beginning of a longer one."""

    key: str
    model: str
    prompt: str

    def body(self, max_tokens: int, *, stream: bool) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
            "return_token_ids": True,
        }


@dataclass(slots=True)
class Seen:
    """How the answers of a load ended. `told`: by a typed error, before or within the answer."""

    whole: int = 0
    told: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def __str__(self) -> str:
        told = ", ".join(f"{count} {code}" for code, count in sorted(self.told.items()))
        return (
            f"{self.whole} whole; told: {told or 'none'}; broken connections: {self.broken.total()}; "
            f"slowest {self.slowest_s:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class FaultLoad:
    """`answers`: what each question is answered when nothing is broken."""

    base_url: str
    answers: Mapping[Question, Sequence[int]]
    streams: int = 8
    seed: int = 1

    async def run(self, stop: asyncio.Event) -> Seen:
        """Asks until `stop` is set, and then until the last answer has ended."""
        seen = Seen()
        async with httpx.AsyncClient(base_url=self.base_url, timeout=400) as client:
            await asyncio.gather(*(self._ask_on(client, stop, n, seen) for n in range(self.streams)))
        return seen

    async def _ask_on(self, client: httpx.AsyncClient, stop: asyncio.Event, number: int, seen: Seen) -> None:
        draw = random.Random(f"{self.seed}.{number}")
        questions = list(self.answers)
        while not stop.is_set():
            question = draw.choice(questions)
            longest = len(self.answers[question])
            began = time.monotonic()
            await self._ask(client, question, draw.randint(longest // 3, longest), draw.random() < 0.7, seen)
            seen.slowest_s = max(seen.slowest_s, time.monotonic() - began)
            await asyncio.sleep(0.05)  # a refusal is quick: it must not become a flood

    async def _ask(
        self, client: httpx.AsyncClient, question: Question, max_tokens: int, stream: bool, seen: Seen
    ) -> None:
        body = question.body(max_tokens, stream=stream)
        headers = {"authorization": f"Bearer {question.key}"}
        try:
            answer = await client.post("/v1/completions", json=body, headers=headers)
        except httpx.HTTPError as error:
            seen.broken[type(error).__name__] += 1
            return
        if answer.status_code != 200:
            _note_refusal(answer, seen)
            return
        tokens, code = streamed(answer.text) if stream else whole(answer.json())
        right = list(self.answers[question][:max_tokens])
        if code is not None and code != NO_END:
            seen.told[code] += 1
            if tokens != right[: len(tokens)]:
                seen.lies.append(f"{question.model}: an answer cut by {code} began wrongly")
        elif tokens == right:
            seen.whole += 1
        else:
            seen.lies.append(f"{question.model}: {len(tokens)} tokens of {max_tokens}, or wrong ones")


def _note_refusal(answer: httpx.Response, seen: Seen) -> None:
    try:
        code = str(answer.json()["error"]["code"])
    except (ValueError, KeyError):
        seen.lies.append(f"{answer.status_code} without a typed error: {answer.text[:100]}")
        return
    if answer.status_code in HONEST_STATUSES:
        seen.told[code] += 1
    else:
        seen.lies.append(f"{answer.status_code} {code}: {answer.text[:200]}")


def whole(body: dict[str, Any]) -> tuple[list[int], str | None]:
    return list(body["choices"][0]["token_ids"]), None


def streamed(text: str) -> tuple[list[int], str | None]:
    """Token ids of a stream, and the code of the error that ended it; `NO_END` where nothing did."""
    tokens: list[int] = []
    for frame in text.split("\n\n"):
        if frame == "data: [DONE]":
            return tokens, None
        if not frame.startswith("data: "):
            continue
        data = json.loads(frame.removeprefix("data: "))
        if "error" in data:
            return tokens, str(data["error"]["code"])
        for choice in data["choices"]:
            tokens += choice.get("token_ids") or []
    return tokens, NO_END


async def right_answers(
    base_url: str, questions: Sequence[Question], max_tokens: int
) -> dict[Question, list[int]]:
    """Each question's answer while nothing is broken."""
    async with httpx.AsyncClient(base_url=base_url, timeout=120) as client:

        async def ask(question: Question) -> list[int]:
            headers = {"authorization": f"Bearer {question.key}"}
            body = question.body(max_tokens, stream=False)
            answer = await client.post("/v1/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            return whole(answer.json())[0]

        return dict(zip(questions, await asyncio.gather(*map(ask, questions)), strict=True))
