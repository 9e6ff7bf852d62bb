"""An alias that moves under load: each answer must be, from its first token to its last, of a version that
the alias could stand for while the request came in."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PARTS = ("adapter_config.json", "adapter_model.safetensors")
MOVING_S = 60.0
ANSWERING_S = 180.0
LOOK_S = 0.01

Answer = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """The alias became `version` between the two times; `inf` while that is under way."""

    version: int
    began: float
    returned: float


@dataclass(frozen=True, slots=True)
class Seen:
    prompt: str
    sent: float
    ended: float
    version: int
    answer: Answer


@dataclass(slots=True)
class Traffic:
    """What clients saw. `alone`: each version's answers when nothing else ran."""

    name: str
    alone: Mapping[int, Mapping[str, Answer]]
    max_tokens: int
    moves: list[Move] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        found = []
        for one in self.seen:
            if one.version not in self._possible(one):
                found.append(f"version {one.version} answered after the alias had moved: {one}")
            elif one.answer != self.alone[one.version][one.prompt]:
                found.append(f"not the answer of version {one.version}: {one}")
        return found

    @property
    def num_across(self) -> int:
        """Requests that were in flight while the alias moved, and ended on the version they began with."""
        return sum(
            any(one.sent < move.began and move.returned < one.ended for move in self.moves)
            and one.version != self._after(one.ended)
            for one in self.seen
        )

    def _after(self, moment: float) -> int:
        return [move.version for move in self.moves if move.returned <= moment][-1]

    def _possible(self, one: Seen) -> set[int]:
        before = [move.version for move in self.moves if move.returned <= one.sent][-1:]
        during = [move.version for move in self.moves if move.returned > one.sent and move.began < one.ended]
        return {*before, *during}


async def ask(
    client: httpx.AsyncClient, model: str, prompt: str, max_tokens: int, *, stream: bool
) -> tuple[int, Answer]:
    """(version, token ids). Raises AssertionError for what is no whole answer."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
        "return_token_ids": True,
    }
    if not stream:
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.headers["x-motet-version"]), tuple(answer.json()["choices"][0]["token_ids"])
    tokens: list[int] = []
    ended = False
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            ended |= line == "data: [DONE]"
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                assert "error" not in chunk, chunk
                tokens.extend(token for choice in chunk["choices"] for token in choice["token_ids"] or ())
    assert ended, "the stream broke off"
    return int(answer.headers["x-motet-version"]), tuple(tokens)


async def upload(client: httpx.AsyncClient, name: str, folder: Path) -> dict[str, Any]:
    files = {part: (folder / part).read_bytes() for part in PARTS}
    answer = await client.post(f"/v1/adapters/{name}/versions", files=files)
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


async def answers_of(
    client: httpx.AsyncClient, model: str, prompts: Sequence[str], max_tokens: int
) -> dict[str, Answer]:
    return {prompt: (await ask(client, model, prompt, max_tokens, stream=False))[1] for prompt in prompts}


async def under_load(
    client: httpx.AsyncClient,
    traffic: Traffic,
    prompts: Sequence[str],
    moves: Sequence[tuple[int, Callable[[], Awaitable[object]]]],
    *,
    clients: int,
    every: int,
) -> None:
    """`clients` ask without a pause; meanwhile the alias moves, once `every` more answers are here."""
    running = [asyncio.create_task(_client(client, traffic, prompts, seed)) for seed in range(clients)]
    try:
        for version, move in moves:
            await _more(traffic, every)
            began = time.monotonic()
            place = len(traffic.moves)
            traffic.moves.append(Move(version, began, float("inf")))
            async with asyncio.timeout(MOVING_S):
                await move()
            traffic.moves[place] = Move(version, began, time.monotonic())
        await _more(traffic, every)
    finally:
        for task in running:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task


async def _more(traffic: Traffic, num: int) -> None:
    """Until so many requests more have ended."""
    wanted = len(traffic.seen) + len(traffic.errors) + num
    for _ in range(round(ANSWERING_S / LOOK_S)):
        if len(traffic.seen) + len(traffic.errors) >= wanted:
            return
        await asyncio.sleep(LOOK_S)
    raise AssertionError(f"{num} more requests did not end within {ANSWERING_S} s")


async def _client(client: httpx.AsyncClient, traffic: Traffic, prompts: Sequence[str], seed: int) -> None:
    draw = random.Random(seed)
    while True:
        prompt, sent = draw.choice(prompts), time.monotonic()
        try:
            version, answer = await ask(
                client, traffic.name, prompt, traffic.max_tokens, stream=draw.random() < 0.7
            )
        except (httpx.HTTPError, AssertionError) as error:
            traffic.errors.append(repr(error))
            await asyncio.sleep(0.1)
            continue
        traffic.seen.append(Seen(prompt, sent, time.monotonic(), version, answer))
