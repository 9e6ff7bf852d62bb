"""PostgreSQL stopped for two minutes under load, then Redis: no client hears 401, what is known is served,
and afterwards no token is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from gateway.api_keys.authenticator import API_KEY
from tests.acceptance.conftest import Record, times
from tests.rig.books import Books, held, settled_books
from tests.rig.client import ask, body_of, session
from tests.rig.killing import Crowd, Told, bills_of
from tests.rig.rig import Rig, Shape, TenantKey, running_rig

CLIENTS = 16
LEAD_S = 5.0
SETTLED_S = 90.0
KNOWN_SHARE = 0.0  # of calls, served while PostgreSQL is away: a worker knows a key for ten seconds
SHAPE = Shape(running=16, frame_ms=2.0, settings={"LEASE_S": "10"})


@dataclass
class Phase:
    """What was heard while a server was away. `strangers`: what keys heard that no worker had seen before."""

    told: Told
    strangers: Counter[str] = field(default_factory=Counter)

    @property
    def lies(self) -> list[str]:
        return self.told.lies + [said for said in self.strangers if not said.startswith("503 ")]


def test_postgres_stopped(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, SHAPE) as rig:
        assert rig.postgres is not None
        assert rig.redis is not None
        keys, unseen = [rig.tenant() for _ in range(3)], rig.tenant()
        before = asyncio.run(_load(rig, keys, LEAD_S))
        rig.postgres.stop()
        database = asyncio.run(_away(rig, keys, [unseen.secret, API_KEY.mint().text], times(120, 25)))
        rig.postgres.restart()
        between = asyncio.run(_load(rig, keys, LEAD_S))
        rig.redis.stop()
        redis = asyncio.run(_away(rig, keys, [unseen.secret], times(120, 15)))
        rig.redis.restart()
        asyncio.run(_back(rig, keys))
        after = asyncio.run(_load(rig, keys, LEAD_S))
        tenants = [key.tenant for key in keys]
        books, wrong, left = asyncio.run(_afterwards(rig, [before, database.told, between, after], tenants))
    phases = {"PostgreSQL away": database, "Redis away": redis}
    record.write(
        f"{CLIENTS} clients of three tenants over two workers; PostgreSQL is stopped for two minutes and "
        f"started "
        "again, then Redis. A worker knows a key once it was used there. What must hold today with Redis "
        "away: "
        "503 with `Retry-After` for everybody, since limits can't be counted.",
        {
            "before": _said(before),
            **{name: _said(phase.told) for name, phase in phases.items()},
            "PostgreSQL away, keys that no worker knew": dict(database.strangers),
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
    assert database.told.statuses["200 whole"] > KNOWN_SHARE * database.told.calls
    assert database.strangers.total() > 0
    assert set(redis.told.statuses) <= {"503 service_unavailable", "0 broken or left", "200 whole"}
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


async def _away(rig: Rig, keys: list[TenantKey], unseen: list[str], seconds: float) -> Phase:
    told = asyncio.create_task(_load(rig, keys, seconds))
    strangers: Counter[str] = Counter()
    async with session() as http:
        while not told.done():
            for secret in unseen:
                strangers[await _stranger(http, rig, secret)] += 1
            await asyncio.sleep(0.5)
    return Phase(await told, strangers)


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
