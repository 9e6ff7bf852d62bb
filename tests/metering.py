"""A mixed load that cuts some of its answers, and the comparison of ledger and journal to the token."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from migrations import async_url

MODELS = {"acme": ("pirate", "sentiment-json", None), "globex": ("shout", "triage", None)}
PROMPTS = ("Tell me about the sea.", "What is two plus two?", "The printer is on fire.", "I loved this film.")
FIELDS = ("prompt", "completion", "cached")


@dataclass(frozen=True, slots=True)
class Load:
    """`cut_share` of the requests are left by the client after a random part of the answer."""

    base_url: str
    api_keys: dict[str, str]
    requests: int
    parallel: int
    max_tokens: int
    seed: int
    cut_share: float = 1 / 3
    base_model: str = "smollm2-135m-instruct"


@dataclass(slots=True)
class Ended:
    """How the requests of a load ended."""

    whole: int = 0
    cut: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Difference:
    """What ledger and journals disagree on. `lines` = attempts in the journals."""

    lines: int
    missing: list[str]  # in a journal, not in the ledger
    unequal: list[str]  # in both, with other counts
    tokens: int  # sum of the journals' tokens, prompt and completion

    @property
    def none(self) -> bool:
        return not self.missing and not self.unequal


async def run_load(load: Load) -> Ended:
    """Sends it and waits until each request has ended or was cut."""
    ended = Ended()
    draw = random.Random(load.seed)
    gate = asyncio.Semaphore(load.parallel)
    plans = [_plan(load, draw) for _ in range(load.requests)]
    async with httpx.AsyncClient(base_url=load.base_url, timeout=300) as client:
        await asyncio.gather(*(_one(client, gate, plan, ended) for plan in plans))
    return ended


@dataclass(frozen=True, slots=True)
class _Plan:
    """A cut is after so many chunks of a stream, or so long into a whole answer; before either, at 0."""

    key: str
    body: dict[str, Any]
    cut_after_chunks: int | None
    cut_after_s: float | None


def _plan(load: Load, draw: random.Random) -> _Plan:
    tenant = draw.choice(sorted(MODELS))
    body = {
        "model": draw.choice(MODELS[tenant]) or load.base_model,
        "messages": [{"role": "user", "content": draw.choice(PROMPTS)}],
        "max_tokens": draw.randint(2, load.max_tokens),
        "n": draw.choice((1, 1, 1, 2)),
        "stream": draw.random() < 0.7,
        "temperature": draw.choice((0, 1)),
        "ignore_eos": True,
    }
    chunks, seconds = draw.randint(0, load.max_tokens // 2), draw.uniform(0.0, 0.5)
    if draw.random() >= load.cut_share:
        return _Plan(load.api_keys[tenant], body, None, None)
    if body["stream"]:
        return _Plan(load.api_keys[tenant], {**body, "max_tokens": load.max_tokens}, chunks, None)
    return _Plan(load.api_keys[tenant], body, None, seconds)


class _Cut(Exception):
    """The client leaves here."""


async def _one(client: httpx.AsyncClient, gate: asyncio.Semaphore, plan: _Plan, ended: Ended) -> None:
    async with gate:
        try:
            async with asyncio.timeout(plan.cut_after_s):
                status = await _read(client, plan)
        except (TimeoutError, _Cut):
            ended.cut += 1
            return
        except httpx.HTTPError as error:
            ended.failed += 1
            ended.reasons.append(repr(error))
            return
    if status == 200:
        ended.whole += 1
    else:
        ended.failed += 1
        ended.reasons.append(f"status {status}")


async def _read(client: httpx.AsyncClient, plan: _Plan) -> int:
    headers = {"authorization": f"Bearer {plan.key}"}
    chunks = 0
    async with client.stream("POST", "/v1/chat/completions", json=plan.body, headers=headers) as answer:
        async for _ in answer.aiter_raw():
            chunks += 1
            if plan.cut_after_chunks is not None and chunks > plan.cut_after_chunks:
                raise _Cut
        return answer.status_code


async def compare(engine: httpx.Client, database_url: str) -> Difference:
    """The engine's journal against the ledger, attempt by attempt."""
    lines = journal_lines(engine)
    rows = await ledger_rows(database_url)
    missing, unequal = [], []
    for line in lines:
        name = f"{line['request']}/{line['attempt']}"
        row = rows.get(name)
        if row is None:
            missing.append(name)
        elif row != tuple(line[each] for each in FIELDS):
            unequal.append(f"{name}: ledger {row}, engine {[line[each] for each in FIELDS]}")
    tokens = sum(line["prompt"] + line["completion"] for line in lines)
    return Difference(len(lines), missing, unequal, tokens)


def journal_lines(engine: httpx.Client) -> list[dict[str, Any]]:
    """All lines of one engine's journal that tenants caused."""
    lines: list[dict[str, Any]] = []
    after = 0
    while True:
        page = engine.get("/internal/journal", params={"after": after, "limit": 1_000}).json()
        if not page["lines"]:
            return [line for line in lines if line["purpose"] == "tenant"]
        lines += page["lines"]
        after = page["lines"][-1]["n"]


async def ledger_rows(database_url: str) -> dict[str, tuple[int, int, int]]:
    """Engine tokens of every ledger row, by request and attempt."""
    engine = create_async_engine(async_url(database_url))
    query = sa.text(
        "SELECT request_id, attempt, prompt_tokens, completion_tokens, cached_tokens FROM usage_ledger"
        " WHERE source = 'engine'"
    )
    try:
        async with engine.connect() as connection:
            rows = (await connection.execute(query)).all()
    finally:
        await engine.dispose()
    return {f"{row.request_id}/{row.attempt}": (row[2], row[3], row[4]) for row in rows}


async def settled(look: Callable[[], Awaitable[Difference]], timeout_s: float) -> Difference:
    """Looks until there is no difference, or `timeout_s` have passed: then the last one."""
    deadline = time.monotonic() + timeout_s
    while True:
        difference = await look()
        if difference.none or time.monotonic() > deadline:
            return difference
        await asyncio.sleep(1)
