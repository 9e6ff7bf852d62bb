"""What tenants are billed is what the engine counted: the short form of tests/acceptance/test_metering.py."""

from __future__ import annotations

import httpx

from tests.metering import Load, compare, run_load, settled


async def test_the_ledger_holds_what_the_engine_counted(
    base_url: str, api_keys: dict[str, str], engine: httpx.Client, platform: dict[str, str]
) -> None:
    load = Load(base_url=base_url, api_keys=api_keys, requests=24, parallel=8, max_tokens=12, seed=4)
    ended = await run_load(load)
    assert ended.failed == 0
    assert ended.cut > 0
    difference = await settled(lambda: compare(engine, platform["database_url"]), timeout_s=60)
    assert difference.lines >= load.requests
    assert difference.missing == []
    assert difference.unequal == []
