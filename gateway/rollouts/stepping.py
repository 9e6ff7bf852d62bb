"""Control's job: takes each rollout on its way, a step at a time, and back.

All that is known lies in its row, which is read and written under a lock in one transaction with the alias it
moves: a leader that dies leaves what it did or nothing, and the next goes on there. Figures are the ledger's:
up to the moment before which it is complete they are summed once and kept (`settled`), what came later is
read anew each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
import structlog

from gateway.aliases import repository as aliases
from gateway.audit.service import SYSTEM
from gateway.catalog import repository as catalog
from gateway.catalog.lifecycle import Hints
from gateway.db import Database, TenantWrite
from gateway.models import Adapter, Alias, Rollout, RolloutState
from gateway.models.rollout import ACTIVE
from gateway.principal import TenantId
from gateway.proofs import repository as proofs
from gateway.proofs.acceptance import Acceptance, AcceptanceResult
from gateway.proofs.answering import Examinee
from gateway.rollouts import course, repository
from gateway.rollouts.course import plan_of
from gateway.rollouts.examining import Examiner
from gateway.rollouts.figures import Pair
from gateway.rollouts.judgement import Reason, Rule, why_back
from gateway.rollouts.plan import MOST_DAYS
from gateway.rollouts.repository import Named
from gateway.tenants.epochs import Epochs
from gateway.usage.watermark import journals_complete_until

log = structlog.get_logger(__name__)

MOST_ACTIVE: Final = 1_000
AT_A_TIME: Final = 4
EXAMS_AT_A_TIME: Final = 8
MAX_SHOWN: Final = 200
"""Characters of the answer that a rollout failed for."""
MOST_UNSETTLED: Final = timedelta(seconds=120)
"""A worker or replica that says nothing holds up what is settled no longer than this."""


@dataclass(slots=True)
class _Exam:
    step: int
    task: asyncio.Task[AcceptanceResult | None]


@dataclass(slots=True)
class _Held:
    """One rollout with its locks, for a transaction."""

    session: TenantWrite
    adapter: Adapter
    rollout: Rollout
    alias: Alias
    epoch: int | None = None  # of the tenant, when something moved
    prefetch: str | None = None  # an artefact that is about to be asked for
    exam: tuple[Examinee, Acceptance] | None = None  # to be taken before it can go on


class Stepper:
    """One a control process. `run_once` may be repeated at any point, and by another process."""

    def __init__(self, db: Database, epochs: Epochs, hints: Hints, examiner: Examiner) -> None:
        self._db = db
        self._epochs = epochs
        self._hints = hints
        self._examiner = examiner
        self._exams: dict[UUID, _Exam] = {}

    async def run_once(self) -> int:
        """Gives how many aliases moved. One that fails holds up no other."""
        async with self._db.system_reader() as session:
            active = await repository.list_active(session, MOST_ACTIVE)
        places = asyncio.Semaphore(AT_A_TIME)

        async def step(rollout: UUID, tenant: TenantId, adapter: UUID) -> int:
            async with places:
                return await self._step(rollout, tenant, adapter)

        done = await asyncio.gather(*(step(*each) for each in active), return_exceptions=True)
        for (rollout, tenant, _), result in zip(active, done, strict=True):
            if isinstance(result, BaseException):
                log.error("rollout_not_stepped", rollout=str(rollout), tenant=str(tenant), exc_info=result)
        self._forget({rollout for rollout, _, _ in active})
        return sum(each for each in done if isinstance(each, int))

    async def close(self) -> None:
        """Exams under way are given up; they are begun again."""
        self._forget(set())

    async def _step(self, rollout: UUID, tenant: TenantId, adapter: UUID) -> int:
        examined = self._examined(rollout)
        async with self._locked(rollout, tenant, adapter) as held:
            if held is None:
                return 0
            if examined is not None and examined[0] == held.rollout.step:
                await _note_exam(held, examined[1])
            if held.rollout.state in ACTIVE:
                await self._go_on(held)
        if held.exam is not None:
            self._begin_exam(rollout, held.rollout.step, *held.exam)
        if held.epoch is None:
            return 0
        await self._epochs.publish(tenant, held.epoch)
        if held.prefetch is not None:
            self._hints.prefetch(tenant, held.prefetch)
        return 1

    @asynccontextmanager
    async def _locked(self, rollout: UUID, tenant: TenantId, adapter: UUID) -> AsyncIterator[_Held | None]:
        """None: it is at its end, or has just been brought there because its alias is not its own."""
        async with self._db.tenant_session(tenant) as session:
            owner = await repository.lock_adapter(session, adapter)
            found = await repository.lock(session, adapter, rollout)
            if owner is None or found is None or found.state not in ACTIVE:
                yield None
                return
            alias = await aliases.find(session, adapter, found.alias)
            if alias is None or alias.revision != found.alias_revision:
                await course.supersede(session, SYSTEM, owner, found)
                yield None
                return
            yield _Held(session, owner, found, alias)

    async def _go_on(self, held: _Held) -> None:
        rollout = held.rollout
        ready = await aliases.ready_versions(held.session, held.adapter.id, [rollout.to_version])
        if not ready:
            message = f"Version {rollout.to_version} is not ready any more."
            await _back(held, Reason(rule=Rule.NOT_READY, message=message))
        elif datetime.now(UTC) - rollout.created_at > timedelta(days=MOST_DAYS):
            message = f"It did not come to its end within {MOST_DAYS} days."
            await _back(held, Reason(rule=Rule.EXPIRED, message=message))
        elif rollout.step_began_at is not None:
            await _hold(held)
        elif rollout.state == RolloutState.RUNNING:
            await _enter(held, ready[0].artefact, ready[0].digests)

    def _begin_exam(self, rollout: UUID, step: int, who: Examinee, acceptance: Acceptance) -> None:
        """Beside the round, which waits for nobody's answers."""
        if rollout in self._exams or len(self._exams) >= EXAMS_AT_A_TIME:
            return
        task = asyncio.create_task(_quietly(self._examiner, who, acceptance), name="rollout-exam")
        self._exams[rollout] = _Exam(step, task)

    def _examined(self, rollout: UUID) -> tuple[int, AcceptanceResult] | None:
        exam = self._exams.get(rollout)
        if exam is None or not exam.task.done():
            return None
        del self._exams[rollout]
        result = exam.task.result()
        return None if result is None else (exam.step, result)

    def _forget(self, but: set[UUID]) -> None:
        for rollout in set(self._exams) - but:
            self._exams.pop(rollout).task.cancel()


async def _enter(held: _Held, artefact: str, digests: Collection[str] | None) -> None:
    """The next weight, once the acceptance prompts were passed."""
    rollout = held.rollout
    if rollout.accepted_step != rollout.step:
        held.exam = await _exam(held, digests)
        if held.exam is not None:
            return
    held.epoch = await course.begin_step(held.session, SYSTEM, held.adapter, rollout, held.alias)
    held.prefetch = artefact


async def _exam(held: _Held, digests: Collection[str] | None) -> tuple[Examinee, Acceptance] | None:
    """None: there are no prompts, or nobody wants them asked."""
    plan, tenant = plan_of(held.rollout), TenantId(held.rollout.tenant_id)
    version = await catalog.find_version(held.session, held.adapter, held.rollout.to_version)
    if version is None or not plan.rollback_on.acceptance:
        return None
    asked = plan.acceptance or await proofs.acceptance_of(held.session, version.id)
    row = await proofs.named(held.session, version.id)
    if asked is None or row is None:
        return None
    who = Examinee(tenant, row.artefact, f"{row.name}@{row.number}", row.salt, digests)
    return who, msgspec.convert(asked, Acceptance)


async def _quietly(examiner: Examiner, who: Examinee, acceptance: Acceptance) -> AcceptanceResult | None:
    try:
        return await examiner(who, acceptance)
    except Exception:
        log.exception("rollout_exam_failed", version=who.label)
        return None


async def _note_exam(held: _Held, examined: AcceptanceResult) -> None:
    told = {"step": held.rollout.step + 1, "passed": examined.num_passed, "prompts": examined.num_prompts}
    if examined.passed:
        held.rollout.accepted_step = held.rollout.step
        repository.add_event(held.session, held.rollout, "accepted", SYSTEM.name, told)
        return
    failed = next(answer for answer in examined.answers if not answer.passed)
    shown = {"expected": failed.expected[:MAX_SHOWN], "text": failed.text[:MAX_SHOWN]}
    figures = {**told, "minimum_share": examined.minimum_share, "failed": shown}
    await _back(held, Reason(rule=Rule.ACCEPTANCE, message=f"{examined.told}.", figures=figures))


async def _hold(held: _Held) -> None:
    """Judges the step, and ends it when it has been held long enough."""
    rollout, plan = held.rollout, plan_of(held.rollout)
    now = datetime.now(UTC)
    pair = await _counted(held, now)
    rollout.shown = pair.row()
    if (reason := why_back(plan.rollback_on, pair)) is not None:
        await _back(held, reason)
        return
    step = plan.steps[rollout.step]
    assert rollout.step_began_at is not None
    held_s = (now - rollout.step_began_at).total_seconds()
    if rollout.state != RolloutState.RUNNING or held_s < step.hold_s or pair.new.requests < step.min_requests:
        return
    told = {"step": rollout.step + 1, "figures": pair.row()}
    repository.add_event(held.session, rollout, "passed", SYSTEM.name, told)
    if rollout.step + 1 == len(plan.steps):
        held.epoch = await course.promote(held.session, SYSTEM, held.adapter, rollout, held.alias, None)
    else:
        rollout.step += 1
        rollout.step_began_at = None
        rollout.settled = pair.row()  # of the old version; the new one's begin anew


async def _counted(held: _Held, now: datetime) -> Pair:
    """The step's figures until now. Moves on what is settled, to where the ledger is complete."""
    rollout, session = held.rollout, held.session
    since = rollout.settled_until
    assert since is not None, "set with the step's beginning"
    complete = await journals_complete_until(session) or since
    until = min(now, max(since, complete, now - MOST_UNSETTLED))
    pair = Pair.of_row(rollout.settled)
    if until > since:
        pair += await _read(held, since, until)
        rollout.settled, rollout.settled_until = pair.row(), until
    return pair + await _read(held, until, now + timedelta(minutes=1))  # a worker's clock may be ahead


async def _read(held: _Held, start: datetime, stop: datetime) -> Pair:
    rollout, adapter = held.rollout, held.adapter
    named = Named(TenantId(rollout.tenant_id), adapter.base_id, adapter.name)
    versions = [rollout.from_version, rollout.to_version]
    found = await repository.figures(held.session, named, versions, start, stop)
    return Pair(old=found[rollout.from_version], new=found[rollout.to_version])


async def _back(held: _Held, reason: Reason) -> None:
    held.epoch = await course.roll_back(held.session, SYSTEM, held.adapter, held.rollout, held.alias, reason)
    log.info("rollout_rolled_back", rollout=str(held.rollout.id), rule=reason.rule, reason=reason.message)
