"""Ends of requests in any order, a hundred thousand times: finish, disconnect and crash of four requests at a
time over every kind of limit. What runs here is the scripts' twin: tests/gateway/limits/test_twin.py."""

from __future__ import annotations

import time

from tests.acceptance.conftest import Record, times
from tests.gateway.limits.model import REQUESTS, Interleaving

CLAIM = (
    "Whatever order admissions, reservations, renewals, ends (told one to three times), late calls and "
    "kills come in: no lease is over its limit, a refusal changes nothing, tokens and money that were not "
    "used come back exactly once, and 60 s after the last kill nothing is held. In half of the runs the "
    "clock stands, so that buckets are told to the token."
)


def test_limit_interleavings(record: Record) -> None:
    runs = times(100_000, 2_000)
    began = time.monotonic()
    for seed in range(runs):
        Interleaving(seed, still=seed % 2 == 0).run()
    record.write(
        CLAIM,
        {
            "interleavings": runs,
            "requests in each": REQUESTS,
            "buckets, leases, budgets of each request": "12, 3, 4",
            "given back twice or never": 0,
            "seconds": round(time.monotonic() - began),
        },
    )
