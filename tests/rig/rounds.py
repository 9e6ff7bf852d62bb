"""Rounds of many parallel calls against small limits, through two workers.

Before each round the buckets of its tenant are filled by deleting their keys in Redis (a missing key is a
full bucket), while nothing runs: waiting a minute for each of a thousand rounds would be the same and take
a day.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from redis.asyncio import Redis

from tests.rig.books import held
from tests.rig.client import Answer, ask, ask_and_leave, body_of, session
from tests.rig.rig import Rig, TenantKey

CALLS = 200
LEAVE_SHARE = 0.1
TOKENS, REQUESTS, PARALLEL = 1_000, 50, 10
PROMPT, MOST, USED = 5, 15, 5  # tokens: of the prompt, reserved for the answer, answered
MICROSECONDS = 60_000_000
SLACK_US = 2_000  # of rounding up, for each call


@dataclass(frozen=True)
class Contender:
    """A tenant with one small limit."""

    limit: str
    key: TenantKey

    @property
    def buckets(self) -> list[str]:
        head = f"{{{self.key.tenant}}}"
        return [
            f"{head}:{part}{what}"
            for part in ("", f"key:{self.key.key_id}:")
            for what in ("tokens", "requests")
        ]


@dataclass
class Rounds:
    """What they came to. `over` and `leaked`: what broke a promise."""

    rounds: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    strays: int = 0  # attempts of clients that had left, begun after their round was over
    over: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    most_of_bound: dict[str, float] = field(default_factory=dict)  # by limit, largest part of its bound


def contenders(rig: Rig) -> list[Contender]:
    """One for each kind of limit; on the key where the kind is the tenant's too, so that both levels are
    seen."""
    return [
        Contender("tokens", rig.tenant(tokens_per_minute=TOKENS)),
        Contender("requests", rig.tenant(key={"requests_per_minute": REQUESTS})),
        Contender("parallel", rig.tenant(max_parallel=PARALLEL)),
    ]


async def run_rounds(rig: Rig, number: int, calls: int = CALLS, seed: int = 1) -> Rounds:
    """`number` rounds of so many calls at a time, over the contenders in turn."""
    those = await asyncio.to_thread(contenders, rig)
    outcome, draw = Rounds(), random.Random(seed)
    read_to: dict[str, int] = {}
    await asyncio.to_thread(rig.journal_lines, read_to)
    async with session() as http, Redis.from_url(rig.redis_url) as redis:
        for n in range(number):
            await _round(rig, those[n % len(those)], Tools(http, redis, read_to, draw, calls), outcome)
    tops = [figures["most_at_a_time"] for figures in await asyncio.to_thread(rig.figures)]
    parallel = sum(top.get(those[2].key.tenant, 0) for top in tops)
    outcome.most_of_bound["parallel"] = parallel / PARALLEL
    if parallel > PARALLEL:
        outcome.over.append(f"{parallel} at a time, limit {PARALLEL}")
    return outcome


@dataclass(frozen=True)
class Tools:
    http: aiohttp.ClientSession
    redis: Redis
    read_to: dict[str, int]
    draw: random.Random
    calls: int


async def _round(rig: Rig, who: Contender, tools: Tools, outcome: Rounds) -> None:
    outcome.strays += len(await asyncio.to_thread(rig.journal_lines, tools.read_to))
    await tools.redis.delete(*who.buckets)
    began_us = await _now_us(tools.redis)
    answers = await asyncio.gather(*(_call(rig, who, tools) for _ in range(tools.calls)))
    outcome.rounds += 1
    outcome.statuses.update(_said(answer) for answer in answers)
    outcome.leaked += [f"round {outcome.rounds}: {what}" for what in await held(rig, [who.key.tenant], 10)]
    found = await asyncio.to_thread(rig.journal_lines, tools.read_to)
    lines = [line for line in found if line["tenant"] == who.key.tenant]
    outcome.strays += len(found) - len(lines)
    outcome.attempts += len(lines)
    if who.limit == "tokens":
        await _judge_tokens(who, tools.redis, lines, began_us, outcome)
    elif who.limit == "requests":
        elapsed = (await _now_us(tools.redis) - began_us) / 1e6
        _judge(who.limit, len({line["request"] for line in lines}), REQUESTS, elapsed, outcome)


async def _now_us(redis: Redis) -> int:
    """By the clock that buckets refill by."""
    seconds, microseconds = await redis.time()
    return int(seconds) * 1_000_000 + int(microseconds)


async def _call(rig: Rig, who: Contender, tools: Tools) -> Answer:
    draw = tools.draw
    body = body_of(rig.base_name, MOST, prompt=PROMPT, stream=draw.random() < 0.5, seed=USED)
    if draw.random() < LEAVE_SHARE:
        after_s = draw.uniform(0, 0.3)
        return await ask_and_leave(tools.http, rig.base_url, who.key.headers, body, after_s)
    return await ask(tools.http, rig.base_url, who.key.headers, body)


async def _judge_tokens(
    who: Contender, redis: Redis, lines: list[dict[str, Any]], began_us: int, outcome: Rounds
) -> None:
    """Used tokens within the bound; and the bucket owes for what was used, no more and no less."""
    used = sum(line["prompt"] + line["completion"] for line in lines)
    debt = int(await redis.get(who.buckets[0]) or 0)
    now = await _now_us(redis)
    owes, spent_us = max(0, debt - now), now - began_us
    _judge(who.limit, used, TOKENS, spent_us / 1e6, outcome)
    most = used * MICROSECONDS / TOKENS + CALLS * SLACK_US
    least = used * MICROSECONDS / TOKENS - spent_us
    if not max(least, 0) <= owes <= most:
        ends = dict(Counter(line["outcome"] for line in lines))
        again = len(lines) - len({line["request"] for line in lines})
        outcome.leaked.append(
            f"round {outcome.rounds}: the bucket owes {owes} us for {used} tokens in {spent_us} us; attempts "
            f"ended {ends}, {again} of them tried again"
        )


def _judge(limit: str, taken: int, most: int, elapsed: float, outcome: Rounds) -> None:
    """The stated bound: what the bucket holds, and what refills meanwhile."""
    bound = most * (1 + elapsed / 60)
    outcome.most_of_bound[limit] = max(outcome.most_of_bound.get(limit, 0.0), taken / bound)
    if taken > bound:
        outcome.over.append(f"round {outcome.rounds}: {taken} {limit} in {elapsed:.2f} s, limit {most}")


def _said(answer: Answer) -> str:
    if answer.status == 0:
        return "left"
    if answer.status == 200:
        return "whole" if answer.whole else f"cut: {answer.code}"
    return f"{answer.status} {answer.code}" + ("" if answer.retry_after else " without Retry-After")


@dataclass
class Alone:
    """Clients that may have one request at a time, each of which asks again with the last byte."""

    calls: int = 0
    refused: list[str] = field(default_factory=list)


async def run_one_at_a_time(rig: Rig, clients: int, calls: int) -> Alone:
    """`calls` of each client, whole answers and streams in turn, each over a connection of its own, so that
    it reaches either worker."""
    outcome = Alone()
    keys = [await asyncio.to_thread(rig.tenant, max_parallel=1) for _ in range(clients)]

    async def client(key: TenantKey) -> None:
        async with session() as http:
            for n in range(calls):
                body = body_of(rig.base_name, 2, stream=n % 2 == 0)
                answer = await ask(http, rig.base_url, key.headers, body)
                outcome.calls += 1
                if not answer.whole:
                    outcome.refused.append(f"call {n}: {_said(answer)}")

    await asyncio.gather(*(client(key) for key in keys))
    return outcome
