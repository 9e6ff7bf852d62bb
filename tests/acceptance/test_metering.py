"""500 mixed requests, a third cut by the client, and a gateway worker killed under load: no token is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

import httpx

from tests.acceptance.conftest import Record
from tests.metering import Difference, Load, compare, run_load, settled
from tests.running_platform import RunningPlatform

REQUESTS = 500
KILLED_LOAD = 120
GRACE_S = 60.0


async def test_metering(
    base_url: str,
    engine: httpx.Client,
    platform: dict[str, Any],
    running_platform: RunningPlatform,
    record: Record,
) -> None:
    api_keys = {tenant["name"]: tenant["api_key"] for tenant in platform["tenants"]}

    async def look() -> Difference:
        return await compare(engine, platform["database_url"])

    load = Load(base_url, api_keys, REQUESTS, parallel=48, max_tokens=48, seed=1)
    ended = await run_load(load)
    mixed = await settled(look, GRACE_S)

    second = Load(base_url, api_keys, KILLED_LOAD, parallel=48, max_tokens=64, seed=2)
    running = asyncio.create_task(run_load(second))
    await asyncio.sleep(3)
    worker = json.loads((running_platform.home / "demo.json").read_text())["gateway"]["worker_pids"][0]
    os.kill(worker, signal.SIGKILL)
    killed_at = time.monotonic()
    after = await running
    recovered = await settled(look, max(1.0, killed_at + GRACE_S - time.monotonic()))
    record.write(
        f"{REQUESTS} mixed requests of two tenants, a third cut by the client at random points; then "
        f"{KILLED_LOAD} more, during which one of two gateway workers is killed (SIGKILL). Ledger rows are "
        "compared with the engine's own journal, attempt by attempt.",
        {
            "whole, cut, failed": f"{ended.whole}, {ended.cut}, {ended.failed}",
            "attempts in the engine's journal": mixed.lines,
            "tokens in the engine's journal": mixed.tokens,
            "missing from the ledger": len(mixed.missing),
            "with other counts": len(mixed.unequal),
            "with the kill: whole, cut, failed": f"{after.whole}, {after.cut}, {after.failed}",
            "attempts in the journal after it": recovered.lines,
            f"missing within {GRACE_S:.0f} s of the kill": len(recovered.missing),
            "with other counts after it": len(recovered.unequal),
        },
    )
    assert ended.failed == 0, ended.reasons[:5]
    assert ended.cut > REQUESTS // 6
    assert mixed.lines >= REQUESTS - ended.cut
    assert mixed.none, (mixed.missing[:5], mixed.unequal[:5])
    assert recovered.none, (recovered.missing[:5], recovered.unequal[:5])
