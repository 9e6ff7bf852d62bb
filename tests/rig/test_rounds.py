"""The short form of tests/acceptance/test_two_workers.py."""

from __future__ import annotations

from tests.rig.rig import Rig
from tests.rig.rounds import run_one_at_a_time, run_rounds


async def test_limits_hold_over_two_workers_and_nothing_leaks(rig: Rig) -> None:
    outcome = await run_rounds(rig, 3, calls=90)
    assert outcome.over == []
    assert outcome.leaked == []
    assert not [said for said in outcome.statuses if "without" in said or "untyped" in said]
    assert outcome.statuses["whole"] > 30
    assert sum(outcome.statuses.values()) == 270


async def test_the_call_after_the_last_byte_is_never_refused(rig: Rig) -> None:
    outcome = await run_one_at_a_time(rig, clients=2, calls=40)
    assert outcome.refused == []
    assert outcome.calls == 80
