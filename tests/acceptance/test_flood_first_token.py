"""A quiet tenant's first tokens on a real engine, alone and beside a flood of another tenant."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx

from tests.acceptance.conftest import Record, is_short, times
from tests.rig.flooding import Heard, Target, offer_apart, part, press

AT_A_TIME = 100
LEAD_S = 15.0
MOST = 1.5  # times as long


async def test_flood_first_token(
    base_url: str, admin: httpx.Client, platform: dict[str, Any], record: Record
) -> None:
    quiet, loud = (
        Target(base_url, platform["base_model"], _key(admin), 32, 0.5, {"ignore_eos": True}) for _ in range(2)
    )
    span = times(240, 40)
    alone = await offer_apart(quiet, time.monotonic() + span)
    until = time.monotonic() + LEAD_S + span
    flood = asyncio.create_task(press(replace(loud, tokens=64), AT_A_TIME, until))
    await asyncio.sleep(LEAD_S)
    beside = await offer_apart(quiet, until - 2, seed=2)
    flooded = await flood
    figures: dict[str, object] = {
        "quiet tenant's streams alone, beside the flood": f"{_ended(alone)}; {_ended(beside)}",
        "streams of the flood": _ended(flooded),
    }
    if not is_short():
        figures |= {"p95 to the first token alone": _ms(alone), "beside the flood": _ms(beside)}
    record.write(
        f"A stream of 32 tokens each two seconds, at random intervals, alone and then beside {AT_A_TIME} "
        f"streams at a "
        "time of another tenant; `motet up` with two workers and one replica on a CPU. Each client is a "
        "process.",
        figures,
    )
    assert alone.statuses["whole"] == alone.offered
    assert beside.statuses["whole"] == beside.offered
    if not is_short():  # a machine that others use makes every wait longer
        assert part(beside.first_s, 0.95) <= MOST * part(alone.first_s, 0.95)


def _key(admin: httpx.Client) -> dict[str, str]:
    made = admin.post("/api/v1/tenants", json={"name": f"flood-{uuid4().hex[:12]}"}).json()
    key = admin.post(f"/api/v1/tenants/{made['id']}/keys", json={"name": "flood"}).json()
    return {"authorization": f"Bearer {key['secret']}"}


def _ended(heard: Heard) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(heard.statuses.items()))


def _ms(heard: Heard) -> str:
    return f"{part(heard.first_s, 0.95) * 1000:.0f} ms"
