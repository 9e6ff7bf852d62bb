"""A tenant that floods with 100 times the load of a quiet one, through two real workers: the quiet one's waits,
what the flood alone uses of the capacity, and what a low class gets beside constant high-class load; then the
quiet one's first tokens beside a flood on a real engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.acceptance.conftest import Record, is_short, times
from tests.rig.flooding import Heard, Window, all_began, offer, part, press, watched
from tests.rig.rig import Rig, Shape, TenantKey, running_rig

SHAPE = Shape(replicas=2, running=6, frame_ms=20.0)  # 12 places of 0.4 s each: 30 requests a second
QUIET_A_SECOND, FLOOD = 2.0, 100
LEAD_S = 5.0
PRESSING = 60  # requests at a time of each class
LOW_SHARE = 2 / 14  # of batch beside interactive, as the weights say
Figures = dict[str, object]


def test_flood(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, SHAPE) as rig:
        alone, beside, loud, window = asyncio.run(_quiet(rig))
        used = asyncio.run(_alone(rig))
        low = asyncio.run(_classes(rig))
    waited, bound = part(beside.waits_s, 0.99), part(alone.waits_s, 0.99) + window.release_s
    figures: Figures = {
        "quiet tenant's requests alone, beside the flood": f"{len(alone.waits_s)}, {len(beside.waits_s)}",
        "offered by the flood for each of the quiet one's": round(loud.offered / beside.offered),
        "how the flood's ended": dict(sorted(loud.statuses.items())),
        "places in use by the flood alone": f"{used:.1%}",
        f"low class beside constant high-class load (its minimum: {LOW_SHARE:.1%})": f"{low:.1%}",
    }
    if not is_short():
        figures |= {
            "quiet tenant's p99 wait alone": _ms(part(alone.waits_s, 0.99)),
            "p99 wait beside the flood": _ms(waited),
            "median time between two places that come free": _ms(window.release_s),
        }
    record.write(
        f"{QUIET_A_SECOND:.0f} requests a second of one tenant, and {FLOOD} times as many of another, both at "
        "random intervals; two workers, two fake replicas with six places each, in which every request takes "
        f"{SHAPE.frame_ms * 20:.0f} ms. A wait is from sending a request to its place at a replica, on one clock. "
        "First tokens on a real engine: `flood_first_token`.",
        figures,
    )
    assert beside.statuses["whole"] == beside.offered
    assert waited <= bound, (waited, bound)
    assert used >= 0.97
    assert low >= 0.95 * LOW_SHARE


async def _quiet(rig: Rig) -> tuple[Heard, Heard, Heard, Window]:
    quiet, loud = await asyncio.to_thread(rig.tenant), await asyncio.to_thread(rig.tenant)
    span = times(120, 20)
    alone = await offer(rig, quiet, QUIET_A_SECOND, time.monotonic() + span)
    until = time.monotonic() + LEAD_S + span
    flood = asyncio.create_task(offer(rig, loud, FLOOD * QUIET_A_SECOND, until, seed=2))
    watching = asyncio.create_task(watched(rig, span - 1, LEAD_S))
    await asyncio.sleep(LEAD_S)
    beside = await offer(rig, quiet, QUIET_A_SECOND, until - 1, seed=3)
    window = await watching
    loud_heard = await flood
    began = await all_began(rig)
    alone.match(began)
    beside.match(began)
    return alone, beside, loud_heard, window


async def _alone(rig: Rig) -> float:
    loud = await asyncio.to_thread(rig.tenant)
    span = times(60, 15)
    flood = asyncio.create_task(press(rig, loud, PRESSING, time.monotonic() + LEAD_S + span + 1))
    window = await watched(rig, span, LEAD_S)
    await flood
    return window.used


async def _classes(rig: Rig) -> float:
    """The low class's part of what was begun while both always wait."""
    keys = [await _key_of(rig, name) for name in ("interactive", "batch")]
    span = times(60, 15)
    until = time.monotonic() + LEAD_S + span + 1
    pressing = [asyncio.create_task(press(rig, key, PRESSING, until)) for key in keys]
    window = await watched(rig, span, LEAD_S)
    await asyncio.gather(*pressing)
    return window.begun[keys[1].tenant] / window.begun.total()


async def _key_of(rig: Rig, service_class: str) -> TenantKey:
    """A class is the key's; before it is used first."""
    key = await asyncio.to_thread(rig.tenant)
    statement = "UPDATE api_keys SET service_class = :name WHERE key_id = :key"
    await rig.sql(statement, name=service_class, key=key.key_id)
    return key


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
