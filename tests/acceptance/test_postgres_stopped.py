"""PostgreSQL stopped for two minutes under load, then Redis: no client hears 401, what is known is served,
limits hold in part, and afterwards no token is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from gateway.api_keys.authenticator import API_KEY
from tests.acceptance.conftest import Record, times
from tests.rig.books import Books, held, settled_books
from tests.rig.client import ask, body_of, session
from tests.rig.killing import Crowd, Told, bills_of, name_of
from tests.rig.rig import Rig, Shape, TenantKey, running_rig

CLIENTS = 16
LEAD_S = 5.0
SETTLED_S = 90.0
KNOWN_SHARE = 1.0  # of calls with a key that was proved in the last 300 s, whatever server is away
LIMIT = 60  # requests a minute of one tenant
LIMITED_CLIENTS = 4
CAUTION, WORKERS = 2, 2  # all workers together let in a half of each limit while Redis is away
SHAPE = Shape(running=16, frame_ms=2.0, settings={"LEASE_S": "10"})


LIMITED_HEARS = {"200 whole", "429 rate_limit_exceeded"}


@dataclass
class Phase:
    """What was heard while a server was away. `strangers`: what keys heard that no worker had seen before;
    `limited`: what the tenant heard that has a limit."""

    told: Told
    strangers: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def lies(self) -> list[str]:
        strange = [said for said in self.strangers if said != "503 service_unavailable"]
        return self.told.lies + strange + [said for said in self.limited if said not in LIMITED_HEARS]

    @property
    def known_share(self) -> float:
        """Of calls without an `Idempotency-Key` whose client stayed, those that were served."""
        return self.told.stayed["200 whole"] / self.told.stayed.total()

    @property
    def most_limited(self) -> int:
        """Requests that the limited tenant's share allows: buckets begin full, and each worker's may hold a
        part of a request more."""
        return int(LIMIT / CAUTION * (1 + self.seconds / 60)) + WORKERS


def test_postgres_stopped(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, SHAPE) as rig:
        assert rig.postgres is not None
        assert rig.redis is not None
        keys, unseen = [rig.tenant() for _ in range(3)], rig.tenant()
        limited = rig.tenant(requests_per_minute=LIMIT)
        before = asyncio.run(_load(rig, keys, LEAD_S))
        rig.postgres.stop()
        secrets = [unseen.secret, API_KEY.mint().text]
        database = asyncio.run(_away(rig, keys, secrets, None, times(120, 25)))
        rig.postgres.restart()
        between = asyncio.run(_load(rig, [*keys, limited], LEAD_S))
        rig.redis.stop()
        redis = asyncio.run(_away(rig, keys, [], limited, times(120, 25)))
        rig.redis.restart()
        asyncio.run(_back(rig, keys))
        after = asyncio.run(_load(rig, keys, LEAD_S))
        tenants = [key.tenant for key in [*keys, limited]]
        books, wrong, left = asyncio.run(_afterwards(rig, [before, database.told, between, after], tenants))
    phases = {"PostgreSQL away": database, "Redis away": redis}
    record.write(
        f"{CLIENTS} clients of three tenants over two workers; PostgreSQL is stopped for two minutes and "
        "started again, then Redis. A worker knows a key for 300 s once it was used there: such a key must "
        "be served, and no other may hear anything but 503 with `Retry-After`. With Redis away, a tenant "
        f"that has {LIMIT} requests a minute gets half of it at most (docs/decisions/0042), and requests "
        "with an `Idempotency-Key` hear 503, since nobody can say whether they ran.",
        {
            "before": _said(before),
            **{name: _said(phase.told) for name, phase in phases.items()},
            "of calls with a known key and without an `Idempotency-Key`, served": ", ".join(
                f"{phase.told.stayed['200 whole']} of {phase.told.stayed.total()} ({name})"
                for name, phase in phases.items()
            ),
            "PostgreSQL away, keys that no worker knew": dict(database.strangers),
            "Redis away, the tenant with a limit; most that its share allows": (
                f"{dict(redis.limited)}; {redis.most_limited} in {redis.seconds:.0f} s"
            ),
            "between, after": f"{_said(between)}; {_said(after)}",
            "answers that were no honest ones, 401 among them": len(database.lies + redis.lies),
            "completions in the replica's journal, rows in the ledger": f"{books.completions}, {books.rows}",
            "missing, unknown, with other counts": (
                f"{len(books.missing)}, {len(books.unknown)}, {len(books.unequal)}"
            ),
            "whole answers billed otherwise": len(wrong),
            "leases and reservations left": len(left),
        },
        "\n".join(f"- {line}" for line in [*database.lies, *redis.lies, *wrong, *left][:20]),
    )
    assert database.lies == redis.lies == between.lies == after.lies == []
    assert database.strangers.total() > 0
    assert database.known_share >= KNOWN_SHARE, database.told.stayed
    assert redis.known_share >= KNOWN_SHARE, redis.told.stayed
    assert 0 < redis.limited["200 whole"] <= redis.most_limited
    assert redis.limited["429 rate_limit_exceeded"] > 0
    assert after.statuses["200 whole"] > 0
    assert books.agree, (books.missing[:5], books.unknown[:5], books.unequal[:5], books.billed_twice[:5])
    assert wrong == []
    assert left == []


async def _load(rig: Rig, keys: list[TenantKey], seconds: float) -> Told:
    stop = asyncio.Event()
    crowd = asyncio.create_task(Crowd(rig, keys, CLIENTS).run(stop))
    await asyncio.sleep(seconds)
    stop.set()
    return await crowd


async def _away(
    rig: Rig, keys: list[TenantKey], unseen: list[str], limited: TenantKey | None, seconds: float
) -> Phase:
    began = time.monotonic()
    told = asyncio.create_task(_load(rig, keys, seconds))
    strangers: Counter[str] = Counter()
    heard: Counter[str] = Counter()
    async with session() as http:
        asking = [_limited(http, rig, limited, told, heard) for _ in range(LIMITED_CLIENTS if limited else 0)]
        held = asyncio.gather(*asking)
        while not told.done():
            for secret in unseen:
                strangers[await _stranger(http, rig, secret)] += 1
            await asyncio.sleep(0.5)
        await held
    return Phase(await told, strangers, heard, time.monotonic() - began)


async def _limited(
    http: aiohttp.ClientSession,
    rig: Rig,
    key: TenantKey | None,
    until: asyncio.Task[Told],
    heard: Counter[str],
) -> None:
    assert key is not None
    while not until.done():
        answer = await ask(http, rig.base_url, key.headers, body_of(rig.base_name, 1))
        heard[name_of(answer) + ("" if answer.whole or answer.retry_after else " without Retry-After")] += 1
        await asyncio.sleep(0.2)


async def _stranger(http: aiohttp.ClientSession, rig: Rig, secret: str) -> str:
    headers = {"authorization": f"Bearer {secret}"}
    answer = await ask(http, rig.base_url, headers, body_of(rig.base_name, 1))
    return f"{answer.status} {answer.code}" + ("" if answer.retry_after else " without Retry-After")


async def _back(rig: Rig, keys: list[TenantKey]) -> None:
    """Until both workers answer again; a breath after the server is."""
    async with session() as http:
        for _ in range(200):
            answer = await ask(http, rig.base_url, keys[0].headers, body_of(rig.base_name, 1))
            if answer.whole:
                return
            await asyncio.sleep(0.1)
    raise AssertionError("Redis is back, and nothing is served")


async def _afterwards(rig: Rig, loads: list[Told], tenants: list[str]) -> tuple[Books, list[str], list[str]]:
    left = await held(rig, tenants, 30)
    books = await settled_books(rig, tenants, SETTLED_S)
    bills = [await bills_of(rig, told, tenants) for told in loads]
    wrong = [line for bill in bills for line in [*bill.wrong, *bill.less]]  # nobody dies here
    return books, wrong, left


def _said(told: Told) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(told.statuses.items()))
