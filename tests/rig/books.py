"""The ledger beside the replicas' own journals, in both directions; and what must be left when nothing
runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from redis.asyncio import Redis

from tests.rig.rig import Rig

ROWS = """
SELECT request_id::text, attempt, prompt_tokens, completion_tokens, cached_tokens,
       billed_prompt_tokens + billed_completion_tokens + billed_cached_tokens AS billed, key_id
FROM usage_ledger WHERE tenant_id::text = ANY(:tenants) AND source = 'engine' AND purpose = 'tenant'
"""
Attempt = tuple[str, int]
REMEMBERED_S = 15 * 60  # a reservation that nobody renews


@dataclass(frozen=True)
class Books:
    """`completions`: attempts in the replicas' journals; `rows`: those in the ledger."""

    completions: int
    rows: int
    missing: list[Attempt]  # in a journal only
    unknown: list[Attempt]  # in the ledger only
    unequal: list[str]
    twice: list[Attempt]  # rows of one attempt
    billed_twice: list[str]  # requests
    tokens: int

    @property
    def agree(self) -> bool:
        return not (self.missing or self.unknown or self.unequal or self.twice or self.billed_twice)


async def books_of(rig: Rig, tenants: list[str]) -> Books:
    lines = [line for line in await asyncio.to_thread(rig.journal_lines) if line["tenant"] in tenants]
    found = await rig.sql(ROWS, tenants=tenants)
    wanted = {
        (line["request"], line["attempt"]): (line["prompt"], line["completion"], line["cached"])
        for line in lines
    }
    names = [(row[0], row[1]) for row in found]
    rows = {name: (row[2], row[3], row[4]) for name, row in zip(names, found, strict=True)}
    billed = [row[0] for row in found if row[5]]
    return Books(
        completions=len(lines),
        rows=len(found),
        missing=sorted(set(wanted) - set(rows)),
        unknown=sorted(set(rows) - set(wanted)),
        unequal=[
            f"{name}: ledger {rows[name]}, replica {wanted[name]}"
            for name in set(rows) & set(wanted)
            if rows[name] != wanted[name]
        ],
        twice=sorted({name for name in names if names.count(name) > 1}) if len(rows) != len(names) else [],
        billed_twice=sorted({name for name in billed if billed.count(name) > 1})
        if len(set(billed)) != len(billed)
        else [],
        tokens=sum(line["prompt"] + line["completion"] for line in lines),
    )


async def settled_books(rig: Rig, tenants: list[str], limit_s: float) -> Books:
    """Looks until they agree, or `limit_s` have passed: then as they are."""
    deadline = time.monotonic() + limit_s
    while True:
        books = await books_of(rig, tenants)
        if books.agree or time.monotonic() > deadline:
            return books
        await asyncio.sleep(0.5)


async def held(rig: Rig, tenants: list[str], limit_s: float, *, reservations: bool = True) -> list[str]:
    """What the tenants' requests still hold once all have ended: leases, reservations, attempts. Reservations
    of killed workers hold nothing by themselves and are forgotten after their time."""
    deadline = time.monotonic() + limit_s
    while True:
        found = await _held_now(rig, tenants, reservations)
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.1)


async def _held_now(rig: Rig, tenants: list[str], reservations: bool) -> list[str]:
    found = []
    async with Redis.from_url(rig.redis_url) as redis:
        seconds, microseconds = await redis.time()
        now = seconds * 1_000_000 + microseconds
        for tenant in tenants:
            async for key in redis.scan_iter(match=f"{{{tenant}}}:*leases", count=1_000):
                if count := await redis.zcount(key, now, "+inf"):
                    found.append(f"{count} leases in {key!r}")
            async for key in redis.scan_iter(match=f"{{{tenant}}}:reservation:*", count=1_000):
                if reservations:
                    found.append(f"{key!r}")
                elif not 0 < await redis.ttl(key) <= REMEMBERED_S:
                    found.append(f"{key!r} stays for ever")
    for number, figures in enumerate(await asyncio.to_thread(rig.figures)):
        if figures["open"]:
            found.append(f"{figures['open']} attempts at replica {number}")
    return found
