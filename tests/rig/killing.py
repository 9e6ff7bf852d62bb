"""A load that is cut, retried and killed under, with all that each client was told; and journals that are fed
to control a second time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from gateway.usage.event import decode_lines
from tests.rig.client import Answer, ask, ask_and_leave, body_of, session
from tests.rig.rig import Rig, TenantKey

LEAVE_SHARE, KEYED_SHARE = 0.2, 0.3
MOST_TOKENS = 30
MOST_TRIES = 4
HONEST = frozenset({0, 200, 409, 429, 502, 503, 504})
BILLED = """
SELECT request_id::text AS request, attempt, completion_tokens AS completion,
       billed_completion_tokens AS billed, billed_prompt_tokens + billed_completion_tokens > 0 AS pays,
       client_request_id AS name
FROM usage_ledger WHERE tenant_id::text = ANY(:tenants)
"""
SUMS = """
SELECT count(*), sum(prompt_tokens), sum(completion_tokens), sum(billed_prompt_tokens),
       sum(billed_completion_tokens), (SELECT count(*) FROM usage_uncounted)
FROM usage_ledger WHERE tenant_id::text = ANY(:tenants)
"""


@dataclass
class Told:
    """What clients were told. `stayed`: of calls without an `Idempotency-Key` whose client did not leave;
    `whole`: tokens by request; `keyed`: by `Idempotency-Key`, of clients that
    never left themselves, which requests they were told of; `answered`: with which one's whole answer."""

    calls: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    stayed: Counter[str] = field(default_factory=Counter)
    whole: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)  # whole answers under a key, tokens by request
    keyed: dict[str, set[str]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)  # keys
    lies: list[str] = field(default_factory=list)
    _awaited: int = 0
    _come: asyncio.Event = field(default_factory=asyncio.Event)

    async def further(self, answers: int, within_s: float) -> None:
        """Waits for so many more answers, for a limited time."""
        self._awaited, self._come = self.calls + answers, asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._come.wait(), within_s)

    def note(self, answer: Answer, wanted: int) -> None:
        self.calls += 1
        if self.calls >= self._awaited:
            self._come.set()
        self.statuses[name_of(answer)] += 1
        if answer.status not in HONEST or (answer.code or "").startswith("untyped"):
            self.lies.append(f"{answer.status} {answer.code}")
        if answer.code == "no_end":
            self.lies.append("a stream ended without an end")
        if answer.whole and answer.tokens != wanted:
            self.lies.append(f"{answer.tokens} tokens of {wanted}")


def name_of(answer: Answer) -> str:
    """How a call ended, for counting."""
    name = "whole" if answer.whole else answer.code or ("broken or left" if not answer.status else "")
    return f"{answer.status} {name}"


@dataclass(frozen=True)
class Crowd:
    """Clients that ask until `stop`, over all of the keys."""

    rig: Rig
    keys: list[TenantKey]
    clients: int
    seed: int = 1
    told: Told = field(default_factory=Told)

    async def run(self, stop: asyncio.Event) -> Told:
        told = self.told
        async with session() as http:
            await asyncio.gather(*(self._client(http, n, stop, told) for n in range(self.clients)))
        return told

    async def _client(
        self, http: aiohttp.ClientSession, number: int, stop: asyncio.Event, told: Told
    ) -> None:
        draw = random.Random(f"{self.seed}.{number}")
        while not stop.is_set():
            tokens = draw.randint(1, MOST_TOKENS)
            body = body_of(self.rig.base_name, tokens, stream=draw.random() < 0.6)
            key = draw.choice(self.keys)
            if draw.random() < KEYED_SHARE:
                await self._keyed(http, key, body, draw, told)
            else:
                await self._plain(http, key, body, draw, told)
            await asyncio.sleep(draw.uniform(0, 0.05))

    async def _plain(
        self,
        http: aiohttp.ClientSession,
        key: TenantKey,
        body: dict[str, Any],
        draw: random.Random,
        told: Told,
    ) -> None:
        url, tokens = self.rig.base_url, body["max_tokens"]
        if draw.random() < LEAVE_SHARE:
            after_s = draw.uniform(0, 0.15)
            told.note(await ask_and_leave(http, url, key.headers, body, after_s), tokens)
            return
        answer = await ask(http, url, key.headers, body)
        told.note(answer, tokens)
        told.stayed[name_of(answer)] += 1
        if answer.whole:
            told.whole[answer.request_id] = answer.tokens

    async def _keyed(
        self,
        http: aiohttp.ClientSession,
        key: TenantKey,
        body: dict[str, Any],
        draw: random.Random,
        told: Told,
    ) -> None:
        """Asks again under the same key until it has the whole answer, as an SDK would."""
        name = f"once-{uuid4().hex}"
        headers = {**key.headers, "idempotency-key": name, "x-request-id": name}
        leaves = draw.random() < LEAVE_SHARE
        if not leaves:
            told.keyed[name] = set()
        for _ in range(MOST_TRIES):
            if leaves:
                answer = await ask_and_leave(http, self.rig.base_url, headers, body, draw.uniform(0, 0.15))
            else:
                answer = await ask(http, self.rig.base_url, headers, body)
            told.note(answer, body["max_tokens"])
            if name in told.keyed and answer.request_id:
                told.keyed[name].add(answer.request_id)
            if answer.whole:
                told.kept[answer.request_id] = answer.tokens
                told.answered.add(name)
                return
            leaves_again, leaves = leaves, False
            await asyncio.sleep(0.05 if leaves_again else draw.uniform(0.1, 0.5))


@dataclass
class Kills:
    workers: int = 0
    control: int = 0


async def kill_at_random(crowd: Crowd, number: int, seed: int, *, control_each: int) -> Kills:
    """So many workers, one after the other, each after a random number of further answers (or ten seconds);
    and control now and then."""
    rig, draw, kills = crowd.rig, random.Random(seed), Kills()
    while kills.workers < number:
        await crowd.told.further(draw.randint(1, 100), within_s=10)
        try:
            rig.kill_worker(draw.randrange(rig.shape.workers))
        except (IndexError, ProcessLookupError):  # its parent is just starting the next one
            continue
        kills.workers += 1
        if kills.workers % control_each == 0:
            await asyncio.to_thread(rig.kill, "control")
            kills.control += 1
            await asyncio.sleep(draw.uniform(0, 1))
            rig.launch("control")
    return kills


def segments(journal_dir: Path) -> Iterator[tuple[str, bytes]]:
    """Journal segments as they are now."""
    for path in journal_dir.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # drained meanwhile
            yield path.name, path.read_bytes()


async def copy_segments(journal_dir: Path, kept: dict[str, bytes], stop: asyncio.Event) -> None:
    """The same at many moments of their lives: the last copy of each."""
    while not stop.is_set():
        kept |= await asyncio.to_thread(lambda: dict(segments(journal_dir)))
        await asyncio.sleep(0.2)


def feed_again(journal_dir: Path, kept: dict[str, bytes], limit_s: float) -> int:
    """Puts the copies back, as segments of dead workers, and waits until control took them. Lines in them."""
    lines = 0
    for number, data in enumerate(kept.values()):
        lines += _num_lines(data)
        (journal_dir / f"again-{number:06d}.jsonl").write_bytes(data)
    deadline = time.monotonic() + limit_s
    while list(journal_dir.glob("again-*")):
        assert time.monotonic() < deadline, "control did not take the journals"
        time.sleep(0.2)
    return lines


def _num_lines(data: bytes) -> int:
    try:
        return len(decode_lines(data)[0])
    except msgspec.MsgspecError:
        return 0


@dataclass(frozen=True)
class Row:
    """Of the ledger, what bills are checked by. `name`: what the client called it; a row that the reconciler
    adds does not know."""

    request: str
    attempt: int
    completion: int
    billed: int
    pays: bool
    name: str | None


@dataclass(frozen=True)
class Bills:
    """`wrong`: whole answers whose request is billed otherwise, keys that are billed more than once. `less`:
    retries whose dead worker's attempt was billed before they took over: they pay for that one, and for
    nothing that came after it (docs/decisions/0039)."""

    wrong: list[str]
    less: list[str]

    @classmethod
    def of(cls, rows: Sequence[Row], told: Told) -> Bills:
        attempts: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            attempts[row.request].append(row)
        paying = {row.request: row for row in rows if row.pays}
        wrong: list[str] = []
        less: list[str] = []
        for request, tokens in (told.whole | told.kept).items():
            paid = paying.get(request)
            if paid is not None and paid.billed == tokens:
                continue
            line = f"{request}: {tokens} tokens told, {None if paid is None else paid.billed} billed"
            first_paid = (
                request in told.kept and paid is not None and _pays_first(paid, attempts[request], tokens)
            )
            (less if first_paid else wrong).append(line)
        return cls(wrong + _twice(rows, told, set(paying)), less)


def _pays_first(paid: Row, attempts: Sequence[Row], tokens: int) -> bool:
    """Whether the reconciler had billed an attempt when a later one computed what the client was told."""
    later = [row for row in attempts if row.attempt > paid.attempt and not row.pays]
    return paid.name is None and any(row.completion == tokens for row in later)


def _twice(rows: Sequence[Row], told: Told, paying: set[str]) -> list[str]:
    by_key = {key: set(requests) for key, requests in told.keyed.items()}
    for row in rows:
        if row.pays and row.name in by_key:
            by_key[row.name].add(row.request)
    billed = {key: len(requests & paying) for key, requests in by_key.items()}
    return [f"{key}: billed {number} times" for key, number in billed.items() if number > 1]


async def bills_of(rig: Rig, told: Told, tenants: list[str]) -> Bills:
    return Bills.of([Row(*row) for row in await rig.sql(BILLED, tenants=tenants)], told)


async def sums(rig: Rig, tenants: list[str]) -> tuple[Any, ...]:
    """Rows and tokens of the ledger, and what waits for a count."""
    return tuple((await rig.sql(SUMS, tenants=tenants))[0])
