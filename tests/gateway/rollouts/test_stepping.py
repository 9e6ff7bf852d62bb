"""A rollout's way, on a ledger that the test writes: forward, back by itself, and through the leader's
death."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, text

from gateway.catalog import repository as catalog
from gateway.catalog.allowed import Viewer
from gateway.catalog.names import LIVE
from gateway.errors import BadRequest, Conflict, Unprocessable
from gateway.models import AuditEvent, WebhookEvent
from gateway.proofs import repository as proofs
from gateway.proofs.acceptance import Acceptance, Prompt
from gateway.rollouts.plan import RollbackOn, Step
from gateway.rollouts.schemas import RolloutIn, RolloutOut
from gateway.traffic.histograms import ERROR
from tests.gateway.aliases.conftest import artefact
from tests.gateway.rollouts.conftest import ACTOR, NAME, Way

STEPS = [Step(weight=5, hold_s=60, min_requests=10), Step(weight=50, hold_s=0, min_requests=1)]
EXAM = Acceptance(prompts=[Prompt(input="Hello", answer="Hi")])


async def test_it_goes_on_when_a_step_was_held_long_enough_and_met_enough(way: Way) -> None:
    rollout = await way.start(steps=STEPS)
    assert await way.state(rollout) == ("running", 1, {1: 100})
    assert await way.stepper.run_once() == 1
    assert await way.state(rollout) == ("running", 1, {1: 95, 2: 5})
    assert way.hints.prefetched == [artefact(2)]
    await way.serve(1, 40)
    await way.serve(2, 9)
    await way.later(rollout, 61)
    assert await way.stepper.run_once() == 0  # too few so far
    await way.serve(2, 2)
    await way.stepper.run_once()
    await way.stepper.run_once()
    assert await way.state(rollout) == ("running", 2, {1: 50, 2: 50})
    await way.serve(2, 3, prompt_tokens=10, completion_tokens=20, total_ms=40 + 19 * 5)
    await way.stepper.run_once()
    assert await way.state(rollout) == ("promoted", 2, {2: 100})
    seen = await way.seen(rollout)
    shown = RolloutOut.of(NAME, seen.rollout, Viewer(way.principal, None), seen.events)
    assert (shown.old.requests, shown.new.requests, shown.new.completion_tokens) == (40, 3, 60)
    assert shown.new.inter_token_ms_p95 == pytest.approx(5, rel=ERROR - 1)
    assert shown.old.inter_token_ms_p95 is None  # no total was told
    assert shown.can == []
    assert shown.events is not None
    assert [event.event for event in shown.events] == ["start", "step", "passed", "step", "passed", "promote"]
    assert shown.events[2].details["figures"]["new"]["requests"] == 11


@pytest.mark.parametrize(
    ("outcome", "num", "rule"),
    [("failed", 3, "error_rate"), ("not_finite", 1, "not_finite"), ("expired", 3, "error_rate")],
)
async def test_a_broken_version_goes_back_by_itself_and_says_why(
    way: Way, outcome: str, num: int, rule: str
) -> None:
    rollout = await way.start(steps=STEPS)
    await way.stepper.run_once()
    await way.serve(1, 60)
    if rule == "error_rate":
        await way.serve(2, 1, outcome)
        await way.serve(2, 2)
        assert await way.stepper.run_once() == 0  # one of three is bad luck
        num += 1
    await way.serve(2, num, outcome)
    assert await way.stepper.run_once() == 1
    assert await way.state(rollout) == ("rolled_back", 1, {1: 100})
    reason = (await way.seen(rollout)).rollout.reason
    assert reason is not None
    assert reason["rule"] == rule
    async with way.db.system_reader() as session:
        audit = select(AuditEvent).where(
            AuditEvent.tenant_id == way.line.tenant, AuditEvent.action == "rollout.rollback"
        )
        (event,) = await session.scalars(audit)
        hooks = select(WebhookEvent).where(
            WebhookEvent.tenant_id == way.line.tenant, WebhookEvent.kind == "rollout.changed"
        )
        told = [hook.data for hook in await session.scalars(hooks.order_by(WebhookEvent.id))]
    assert event.details["reason"] == told[-1]["reason"] == reason
    assert [data["event"] for data in told] == ["start", "step", "rollback"]
    assert await way.stepper.run_once() == 0


async def test_slow_first_tokens_send_it_back_but_not_a_load(way: Way) -> None:
    rollout = await way.start(steps=STEPS)
    await way.stepper.run_once()
    await way.serve(1, 40)
    await way.serve(2, 8, ttft_ms=4_000, load_ms=3_950)
    assert await way.stepper.run_once() == 0
    await way.serve(2, 8, ttft_ms=400)
    assert await way.stepper.run_once() == 1
    reason = (await way.seen(rollout)).rollout.reason
    assert reason is not None
    assert (reason["rule"], reason["figures"]["beyond"]) == ("ttft_p95_ratio", 8)


async def test_acceptance_prompts_are_passed_before_anybody_meets_it(way: Way) -> None:
    way.examiner.passed = [None, True, False]
    rollout = await way.start(steps=STEPS, acceptance=EXAM)
    await until_asked(way, 1)  # and no replica could say
    assert await way.state(rollout) == ("running", 1, {1: 100})
    await until_asked(way, 2)
    await way.stepper.run_once()
    assert await way.state(rollout) == ("running", 1, {1: 95, 2: 5})
    await way.serve(2, 10)
    await way.later(rollout, 61)
    await until_asked(way, 3)
    await way.stepper.run_once()
    assert await way.state(rollout) == ("rolled_back", 2, {1: 100})
    reason = (await way.seen(rollout)).rollout.reason
    assert reason is not None
    assert reason["rule"] == "acceptance"
    assert reason["message"] == "0 of 1 prompts were answered as asked; 100% have to be."
    assert reason["figures"]["failed"] == {"expected": "Hi", "text": "no"}
    assert {who.artefact for who in way.examiner.asked} == {artefact(2)}


async def test_without_prompts_of_its_own_it_asks_those_of_the_upload(way: Way) -> None:
    own = Acceptance(prompts=[Prompt(input="Bye", answer="So long")])
    async with way.db.tenant_session(way.line.tenant) as session:
        version = await catalog.find_version(session, await way.lock(session), 2)
        assert version is not None
        await proofs.add_facts(session, version, {}, msgspec.to_builtins(own))
    way.examiner.passed = [False]
    rollout = await way.start(steps=STEPS)
    await until_asked(way, 1)
    await way.stepper.run_once()
    assert way.examiner.prompts == [own]
    assert (await way.state(rollout))[0] == "rolled_back"
    unexamined = await way.start(steps=STEPS, rollback_on=RollbackOn(acceptance=False))
    await way.stepper.run_once()
    assert await way.state(unexamined) == ("running", 1, {1: 95, 2: 5})


async def until_asked(way: Way, times: int) -> None:
    """Rounds until the examiner was asked so often, and had a moment to answer."""
    for _ in range(50):
        if len(way.examiner.asked) >= times:
            break
        await way.stepper.run_once()
        await asyncio.sleep(0)
    assert len(way.examiner.asked) == times
    await asyncio.sleep(0)


async def test_the_next_leader_goes_on_where_the_last_one_died(way: Way) -> None:
    """Two at once, too: each step is taken once, and no figure counts twice."""
    rollout = await way.start(steps=STEPS)
    await asyncio.gather(*(way.new_stepper().run_once() for _ in range(4)))
    assert await way.state(rollout) == ("running", 1, {1: 95, 2: 5})
    await way.serve(2, 12)
    await way.later(rollout, 61)
    await asyncio.gather(*(way.new_stepper().run_once() for _ in range(4)))
    for _ in range(3):
        await way.new_stepper().run_once()
    seen = await way.seen(rollout)
    assert [event.kind for event in seen.events] == ["start", "step", "passed", "step"]
    assert seen.events[2].details["figures"]["new"]["requests"] == 12


async def test_what_is_settled_is_kept_when_the_ledger_is_complete_so_far(way: Way) -> None:
    rollout = await way.start(steps=STEPS)
    await way.stepper.run_once()
    await way.serve(2, 4)
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    async with way.db.system_session() as session:
        await session.execute(
            text("UPDATE rollouts SET step_began_at = :t, settled_until = :t WHERE id = :id"),
            {"t": long_ago, "id": rollout},
        )
    await way.stepper.run_once()
    first = (await way.seen(rollout)).rollout
    assert first.settled_until is not None
    assert first.settled_until > long_ago
    await way.serve(2, 3)
    await way.stepper.run_once()
    assert (await way.seen(rollout)).rollout.shown["new"]["requests"] == 7


async def test_somebody_elses_move_has_the_last_word(way: Way) -> None:
    rollout = await way.start(steps=STEPS)
    await way.stepper.run_once()
    async with way.db.tenant_session(way.line.tenant) as session:
        await catalog.move_alias(session, await way.lock(session), LIVE, 3)
    await way.stepper.run_once()
    assert await way.state(rollout) == ("superseded", 1, {3: 100})


async def test_people_pause_promote_and_roll_back(way: Way) -> None:
    rollout = await way.start(steps=STEPS, rollback_on=RollbackOn(error_rate=None))
    await way.rollouts.pause(way.principal, ACTOR, NAME, rollout)
    assert await way.stepper.run_once() == 0
    await way.rollouts.resume(way.principal, ACTOR, NAME, rollout)
    assert await way.stepper.run_once() == 1
    back = await way.rollouts.roll_back(way.principal, ACTOR, NAME, rollout)
    assert (back.state, await way.weights()) == ("rolled_back", {1: 100})
    assert back.reason == {"rule": "human", "message": "By key:k.", "figures": {}}
    with pytest.raises(Conflict):
        await way.rollouts.promote(way.principal, ACTOR, NAME, rollout)
    again = await way.start(steps=STEPS)
    promoted = await way.rollouts.promote(way.principal, ACTOR, NAME, again)
    assert (promoted.state, await way.weights()) == ("promoted", {2: 100})


async def test_what_can_not_begin_is_refused(way: Way) -> None:
    refusals: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"to": 9}, Conflict),
        ({"to": 1}, Conflict),
        ({"to": 2, "steps": [Step(weight=50), Step(weight=50)]}, BadRequest),
        ({"to": 2, "acceptance": Acceptance(prompts=[Prompt(input="x")])}, Unprocessable),
        ({"to": 2, "acceptance": Acceptance(prompts=[Prompt(input="x", must_match="(a")])}, Unprocessable),
    ]
    for wanted, error in refusals:
        with pytest.raises(error):
            await way.rollouts.start(way.principal, ACTOR, NAME, RolloutIn(**wanted))
    await way.start(steps=STEPS)
    with pytest.raises(Conflict, match="steps this alias"):
        await way.start(steps=STEPS)
