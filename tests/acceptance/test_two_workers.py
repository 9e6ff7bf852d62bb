"""Two workers, 200 parallel calls against small limits, 1,000 rounds: never over, nothing leaks; and a client
that may have one request at a time is never refused the one after the last byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.acceptance.conftest import Record, times
from tests.rig.rig import Shape, running_rig
from tests.rig.rounds import CALLS, PARALLEL, REQUESTS, TOKENS, run_one_at_a_time, run_rounds

CLIENTS = 4


def test_two_workers(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, Shape(running=32)) as rig:
        outcome = asyncio.run(run_rounds(rig, times(1_000, 30)))
        alone = asyncio.run(run_one_at_a_time(rig, CLIENTS, times(500, 100)))
    record.write(
        f"{CALLS} parallel calls a round, half of them streams, a tenth left by their clients, over two "
        f"gateway "
        f"workers, 1,000 rounds over three tenants in turn: one with {TOKENS} tokens a minute, one whose "
        f"key has "
        f"{REQUESTS} requests a minute, one with {PARALLEL} requests at a time. Buckets are filled "
        f"between rounds "
        "by deleting their keys in Redis. The bound of a bucket is what it holds and what refills during the "
        "round. Leases, reservations and the debt of the bucket are read after each round. Replica: a "
        "fake one.",
        {
            "rounds": outcome.rounds,
            "calls, as they ended": dict(sorted(outcome.statuses.items())),
            "attempts at the replica": outcome.attempts,
            "of clients that had left, begun after their round was over": outcome.strays,
            "largest part of a bound that was used": {
                limit: round(part, 3) for limit, part in sorted(outcome.most_of_bound.items())
            },
            "rounds over a bound": len(outcome.over),
            "leaks": len(outcome.leaked),
            "calls one at a time, each after the last byte of the one before": alone.calls,
            "of them refused": len(alone.refused),
        },
        "\n".join(f"- {line}" for line in [*outcome.over, *outcome.leaked, *alone.refused][:20]),
    )
    assert outcome.over == []
    assert outcome.leaked == []
    assert alone.refused == []
    assert alone.calls == CLIENTS * times(500, 100)
