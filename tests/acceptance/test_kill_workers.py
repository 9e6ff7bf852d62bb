"""kill -9 of gateway workers 200 times at random points under load: the ledger holds what the replicas
completed, once; each whole answer is billed as it was told; feeding the journals again changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import Record, times
from tests.rig.books import Books, held, settled_books
from tests.rig.client import ask, body_of, session
from tests.rig.killing import (
    Bills,
    Crowd,
    Kills,
    Told,
    bills_of,
    copy_segments,
    feed_again,
    kill_at_random,
    sums,
)
from tests.rig.rig import Rig, Shape, TenantKey, running_rig

CLIENTS = 24
CONTROL_EACH = 10
LEASE_S = 10
SHAPE = Shape(running=16, frame_ms=2.0, broken=20, settings={"LEASE_S": str(LEASE_S)})
SETTLED_S = 120.0


@dataclass(frozen=True)
class Found:
    kills: Kills
    told: Told
    books: Books
    bills: Bills
    held: list[str]
    fed_again: int
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def test_kill_workers(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, SHAPE) as rig:
        keys = [rig.tenant() for _ in range(3)]
        found = asyncio.run(_run(rig, keys))
    told, books = found.told, found.books
    unanswered = len(told.keyed.keys() - told.answered)
    record.write(
        f"{CLIENTS} clients of three tenants (60 % streams, a fifth left by the client, 30 % with an "
        "`Idempotency-Key` and retries under it) over two gateway workers and a fake replica that breaks "
        "2 % of "
        "its attempts off. Meanwhile workers are killed (SIGKILL) 200 times at random moments, and "
        "control with "
        f"each {CONTROL_EACH}th. Then ledger rows are compared with the replica's journal in both "
        f"directions, "
        "bills with what clients were told, and copies of the workers' journal segments are fed to "
        "control again.",
        {
            "workers killed, control killed": f"{found.kills.workers}, {found.kills.control}",
            "calls, as they ended": dict(sorted(told.statuses.items())),
            "answers that were no honest ones": len(told.lies),
            "completions in the replica's journal": books.completions,
            "rows in the ledger": books.rows,
            "missing, unknown, with other counts": (
                f"{len(books.missing)}, {len(books.unknown)}, {len(books.unequal)}"
            ),
            "attempts with two rows, requests billed twice": f"{len(books.twice)}, {len(books.billed_twice)}",
            "whole answers billed otherwise, keys billed twice": len(found.bills.wrong),
            "retries that pay for their dead worker's attempt only": len(found.bills.less),
            "keys; without an answer after all tries": f"{len(told.keyed)}; {unanswered}",
            "journal lines fed again; rows and sums after it": (
                f"{found.fed_again}; {'unchanged' if found.before == found.after else found.after}"
            ),
            f"leases left {LEASE_S} s after the last kill": len(found.held),
        },
        "\n".join(f"- {line}" for line in [*told.lies, *books.unequal, *found.bills.wrong, *found.held][:20]),
    )
    assert told.lies == []
    assert books.agree, (books.missing[:5], books.unknown[:5], books.unequal[:5], books.billed_twice[:5])
    assert books.completions > found.kills.workers
    assert found.bills.wrong == []
    assert found.held == []
    assert found.fed_again > 0
    assert found.before == found.after


async def _run(rig: Rig, keys: list[TenantKey]) -> Found:
    tenants = [key.tenant for key in keys]
    stop, kept = asyncio.Event(), dict[str, bytes]()
    crowd = Crowd(rig, keys, CLIENTS)
    asking = asyncio.create_task(crowd.run(stop))
    copying = asyncio.create_task(copy_segments(rig.journal_dir, kept, stop))
    kills = await kill_at_random(crowd, times(200, 25), 1, control_each=CONTROL_EACH)
    stop.set()
    told, _ = await asyncio.gather(asking, copying)
    await asyncio.to_thread(rig.wait_until_ready)
    left = await held(rig, tenants, LEASE_S + 5, reservations=False)
    books = await settled_books(rig, tenants, SETTLED_S)
    bills = await bills_of(rig, told, tenants)
    before = await sums(rig, tenants)
    fed = await asyncio.to_thread(feed_again, rig.journal_dir, kept, 60)
    await asyncio.sleep(3)  # what control takes, it has written
    after = await sums(rig, tenants)
    await _all_places_serve(rig, keys[0])
    return Found(kills, told, books, bills, left, fed, before, after)


async def _all_places_serve(rig: Rig, key: TenantKey) -> None:
    """Nothing that died keeps a place."""
    async with session() as http:
        body = body_of(rig.base_name, 5)
        asked = (ask(http, rig.base_url, key.headers, body) for _ in range(4 * rig.shape.running))
        answers = await asyncio.gather(*asked)
    assert sum(answer.whole for answer in answers) >= 3.8 * rig.shape.running  # but those that it broke off
