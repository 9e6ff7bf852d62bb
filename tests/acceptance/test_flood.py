"""A tenant that floods with 100 times the load of a quiet one, through two real workers: the quiet one's
waits, what the flood alone uses, and what a low class gets beside constant high-class load. Its first
tokens on a real engine: test_flood_first_token.py."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.conftest import Record, is_short, times
from tests.rig.flooding import Heard, Target, Window, all_arrived, offer, offer_apart, part, press, watched
from tests.rig.rig import Rig, Shape, TenantKey, running_rig

# 12 places of 0.8 s each: 15 requests a second. The queue is short, so that a flood is refused and not
# gathered.
SHAPE = Shape(replicas=2, running=6, frame_ms=40.0, settings={"QUEUE_ITEMS_TENANT": "200"})
TOKENS = 20
QUIET_A_SECOND, FLOOD = 0.5, 100
LEAD_S = 10.0
PRESSING = 60  # requests at a time of each class
LOW_SHARE = 2 / 14  # of batch beside interactive, as the weights say
CLAIM = (
    "A request each two seconds of one tenant, and 100 times as many of another, both at random intervals; "
    "two workers, two fake replicas of six places, in which every request takes 0.8 s. A wait is from "
    "sending a request to its arrival at a replica, on one clock; the quiet tenant's client is a process of "
    "its own. What a replica does with one above its places is its scheduler's: `flood_first_token`."
)


@dataclass(frozen=True)
class Beside:
    alone: Heard
    quiet: Heard
    loud: Heard
    window: Window

    @property
    def bound_s(self) -> float:
        return part(self.alone.waits_s, 0.99) + self.window.release_s


def test_flood(demo_model_dir: Path, record: Record) -> None:
    with running_rig(demo_model_dir, SHAPE) as rig:
        beside = asyncio.run(_quiet(rig))
        used = asyncio.run(_alone(rig))
        low = asyncio.run(_classes(rig))
    quiet, waited = beside.quiet, part(beside.quiet.waits_s, 0.99)
    figures: dict[str, object] = {
        "quiet tenant's requests alone, beside the flood": f"{beside.alone.offered}, {quiet.offered}",
        "of them not whole": beside.alone.offered + quiet.offered - len(beside.alone.sent) - len(quiet.sent),
        "offered by the flood, as it ended": dict(sorted(beside.loud.statuses.items())),
        "others that came to a replica while one of the quiet one's waited: median, p99": (
            f"{part(quiet.overtaken_by, 0.5)}, {part(quiet.overtaken_by, 0.99)}"
        ),
        "places in use by a flood alone": f"{used:.1%}",
        f"low class beside constant high-class load (its minimum: {LOW_SHARE:.1%})": f"{low:.1%}",
    }
    if not is_short():
        figures |= {
            "quiet tenant's p99 wait alone": _ms(part(beside.alone.waits_s, 0.99)),
            "beside the flood": _ms(waited),
            "median time between two places that come free": _ms(beside.window.release_s),
        }
    record.write(CLAIM, figures)
    assert quiet.statuses["whole"] == quiet.offered
    assert used >= (0.9 if is_short() else 0.97)
    assert low >= 0.95 * LOW_SHARE
    if not is_short():  # a machine that others use makes every wait longer, and every place wait
        assert waited <= beside.bound_s, (waited, beside.bound_s)


async def _quiet(rig: Rig) -> Beside:
    quiet = await _target(rig, QUIET_A_SECOND)
    loud = await _target(rig, FLOOD * QUIET_A_SECOND)
    span = times(400, 40)
    alone = await offer_apart(quiet, time.monotonic() + span)
    until = time.monotonic() + LEAD_S + span
    flood = asyncio.create_task(offer(loud, until, seed=2))
    watching = asyncio.create_task(watched(rig, span - 2, LEAD_S))
    await asyncio.sleep(LEAD_S)
    beside = await offer_apart(quiet, until - 2, seed=3)
    window, flooded = await watching, await flood
    arrived = await all_arrived(rig)
    alone.match(arrived)
    beside.match(arrived)
    return Beside(alone, beside, flooded, window)


async def _alone(rig: Rig) -> float:
    span = times(60, 20)
    until = time.monotonic() + LEAD_S + span + 1
    flood = asyncio.create_task(press(await _target(rig), PRESSING, until))
    window = await watched(rig, span, LEAD_S)
    await flood
    return window.used


async def _classes(rig: Rig) -> float:
    """The low class's part of what was begun while both always wait."""
    keys = [await _key_of(rig, name) for name in ("interactive", "batch")]
    span = times(120, 30)
    until = time.monotonic() + LEAD_S + span + 1
    targets = [Target(rig.base_url, rig.base_name, key.headers, TOKENS) for key in keys]
    pressing = [asyncio.create_task(press(target, PRESSING, until)) for target in targets]
    window = await watched(rig, span, LEAD_S)
    await asyncio.gather(*pressing)
    return window.begun[keys[1].tenant] / window.begun.total()


async def _target(rig: Rig, a_second: float = 1.0) -> Target:
    key = await asyncio.to_thread(rig.tenant)
    return Target(rig.base_url, rig.base_name, key.headers, TOKENS, a_second)


async def _key_of(rig: Rig, service_class: str) -> TenantKey:
    """A class is the key's; before it is used first."""
    key = await asyncio.to_thread(rig.tenant)
    statement = "UPDATE api_keys SET service_class = :name WHERE key_id = :key"
    await rig.sql(statement, name=service_class, key=key.key_id)
    return key


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
