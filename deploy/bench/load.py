"""A closed loop of streams on an OpenAI-compatible server, and what their clients felt."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Endpoint:
    """A server. `headers` go with each request, and those of `by_model` with requests for that model."""

    name: str
    url: str  # ends in /v1
    base_model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    by_model: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """One request: a greedy chat answer of exactly `max_tokens` tokens."""

    model: str
    prompt: str
    max_tokens: int
    system: str = ""
    tenant: str = ""  # whose request it is, where the server knows tenants


@dataclass
class Answer:
    """Times in seconds after the request was sent; in an open loop, after it was due."""

    ask: Ask
    frames_s: list[float] = field(default_factory=list)  # frames with text
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""

    @property
    def ttft_s(self) -> float:
        return self.frames_s[0]

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in zip(self.frames_s, self.frames_s[1:], strict=False)]


class LoadFailed(Exception):
    """A measurement with an error in it is none."""


@dataclass(frozen=True)
class Sample:
    """What one run of a load measured."""

    answers: Sequence[Answer]
    seconds: float

    @property
    def output_rate(self) -> float:
        """Generated tokens a second."""
        return sum(answer.completion_tokens for answer in self.answers) / self.seconds

    @property
    def input_rate(self) -> float:
        """Prompt tokens a second."""
        return sum(answer.prompt_tokens for answer in self.answers) / self.seconds

    def ttft_ms(self, share: float) -> float:
        return 1000 * percentile([answer.ttft_s for answer in self.answers if answer.frames_s], share)

    def gap_ms(self, share: float) -> float:
        """Between two frames of one stream."""
        return 1000 * percentile([gap for answer in self.answers for gap in answer.gaps_s], share)

    def without(self, asks: Sequence[Ask]) -> Sample:
        """The same without what was answered to some, the first of each stream for example."""
        left_out = {id(ask) for ask in asks}
        return Sample([answer for answer in self.answers if id(answer.ask) not in left_out], self.seconds)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all don't exceed; NaN of none."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def run(endpoint: Endpoint, asks: Sequence[Ask], streams: int) -> Sample:
    """`streams` clients; each sends its next request when its last answer has ended. Raises `LoadFailed`."""
    async with _session() as session:
        began = time.perf_counter()
        answers = await _drain(session, endpoint, iter(asks), streams)
        return Sample(checked(answers), time.perf_counter() - began)


async def run_beside(
    endpoint: Endpoint,
    asks: Sequence[Ask],
    streams: int,
    noise: Sequence[Ask],
    noise_streams: int,
    *,
    ahead_s: float = 1.0,
) -> Sample:
    """The same while `noise` is asked again and again by other clients, whose answers aren't counted. It
    begins `ahead_s` earlier."""
    async with _session() as session:
        beside = asyncio.create_task(_drain(session, endpoint, _forever(noise), noise_streams))
        await asyncio.sleep(ahead_s)
        began = time.perf_counter()
        try:
            answers = await _drain(session, endpoint, iter(asks), streams)
            seconds = time.perf_counter() - began
        finally:
            if beside.done():
                checked(beside.result())
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
        return Sample(checked(answers), seconds)


async def run_open(calls: Sequence[tuple[Endpoint, Ask]], rate: float, seed: object) -> list[Answer]:
    """An open loop: requests arrive as a Poisson process of `rate` a second, whatever the answers do. A
    closed loop would slow with the server and hide its queue."""
    dice = random.Random(str(seed))  # noqa: S311 - arrivals, not secrets
    async with _session() as session:
        due, tasks = time.perf_counter(), []
        for endpoint, ask in calls:
            due += dice.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(_call(session, endpoint, ask, due)))
        return list(await asyncio.gather(*tasks))


def checked(answers: Sequence[Answer]) -> Sequence[Answer]:
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        raise LoadFailed(f"{len(errors)} of {len(answers)} requests failed, the first: {errors[0]}")
    short = [answer for answer in answers if answer.completion_tokens != answer.ask.max_tokens]
    if short:
        raise LoadFailed(f"{len(short)} answers are not of {short[0].ask.max_tokens} tokens")
    return answers


def _forever(asks: Sequence[Ask]) -> Iterator[Ask]:
    while True:
        yield from asks


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    # A connection for each request: some servers close idle ones just as the next request is written.
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0, force_close=True))


async def _drain(
    session: aiohttp.ClientSession, endpoint: Endpoint, asks: Iterator[Ask], streams: int
) -> list[Answer]:
    answers: list[Answer] = []

    async def client() -> None:
        for ask in asks:
            answer = await _call(session, endpoint, ask)
            answers.append(answer)
            if answer.error:
                return

    await asyncio.gather(*(client() for _ in range(streams)))
    return answers


async def _call(
    session: aiohttp.ClientSession, endpoint: Endpoint, ask: Ask, due: float | None = None
) -> Answer:
    answer, began = Answer(ask), time.perf_counter() if due is None else due
    headers = {**endpoint.headers, **endpoint.by_model.get(ask.model, {})}
    if ask.tenant:
        headers["x-motet-tenant"] = ask.tenant
    try:
        async with session.post(
            f"{endpoint.url}/chat/completions", json=_body(ask), headers=headers
        ) as reply:
            if reply.status != 200:
                answer.error = f"{reply.status}: {(await reply.text())[:300]}"
                return answer
            async for line in reply.content:
                _take(answer, line, time.perf_counter() - began)
    except (aiohttp.ClientError, TimeoutError) as error:
        answer.error = repr(error)
    return answer


def _body(ask: Ask) -> dict[str, Any]:
    system = [{"role": "system", "content": ask.system}] if ask.system else []
    return {
        "model": ask.model,
        "messages": [*system, {"role": "user", "content": ask.prompt}],
        "max_tokens": ask.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _take(answer: Answer, line: bytes, at_s: float) -> None:
    if not line.startswith(b"data: {"):
        return
    frame = json.loads(line[6:])
    if "error" in frame:
        answer.error = str(frame["error"])
        return
    if usage := frame.get("usage"):
        answer.prompt_tokens, answer.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    if frame.get("choices") and frame["choices"][0]["delta"].get("content"):
        answer.frames_s.append(at_s)
