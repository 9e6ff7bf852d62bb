"""A rollout without a platform: its rows, a ledger that the test writes, and a leader whose time it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from gateway.aliases import repository as aliases
from gateway.aliases.moves import weights_of
from gateway.audit.service import Actor
from gateway.catalog import repository as catalog
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line
from gateway.db import Database
from gateway.models import Adapter
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.proofs.acceptance import Acceptance, AcceptanceResult, Given, Judge
from gateway.proofs.answering import Examinee
from gateway.rollouts.schemas import RolloutIn
from gateway.rollouts.service import Rollouts, Seen
from gateway.rollouts.stepping import Stepper
from gateway.tenants.epochs import Epochs
from gateway.usage.repository import insert_events
from tests.gateway.aliases.conftest import add_versions
from tests.gateway.usage.test_journal import make_event

NAME = "support"
ACTOR = Actor("key:k")


@dataclass
class NoHints:
    prefetched: list[str] = field(default_factory=list)

    def prefetch(self, owner: TenantId, artefact: str) -> None:
        self.prefetched.append(artefact)

    def retire(self, owner: TenantId, artefact: str) -> None:
        raise AssertionError("a rollout retires nothing")


@dataclass
class Answers:
    """An examiner that says what the test wants."""

    passed: list[bool | None] = field(default_factory=list)
    asked: list[Examinee] = field(default_factory=list)
    prompts: list[Acceptance] = field(default_factory=list)

    async def __call__(self, who: Examinee, acceptance: Acceptance) -> AcceptanceResult | None:
        self.asked.append(who)
        self.prompts.append(acceptance)
        verdict = self.passed.pop(0)
        if verdict is None:
            return None
        judge = Judge(acceptance)
        judge.hear([Given(prompt.answer or "" if verdict else "no") for prompt in acceptance.prompts])
        return judge.result


@dataclass
class Way:
    db: Database
    line: Line
    rollouts: Rollouts
    examiner: Answers
    hints: NoHints
    new_stepper: Callable[[], Stepper]
    principal: Principal
    stepper: Stepper

    async def start(self, **wanted: Any) -> UUID:
        body = RolloutIn(to=2, **wanted)
        return (await self.rollouts.start(self.principal, ACTOR, NAME, body)).id

    async def seen(self, rollout: UUID) -> Seen:
        return await self.rollouts.get(self.principal, NAME, rollout)

    async def state(self, rollout: UUID) -> tuple[str, int, dict[int, int]]:
        """(state, step from 1, the alias's weights)."""
        found = (await self.seen(rollout)).rollout
        return found.state, found.step + 1, await self.weights()

    async def weights(self) -> dict[int, int]:
        async with self.db.tenant_reader(self.line.tenant) as session:
            row = await catalog.find_adapter(session, self.line, NAME)
            assert row is not None
            alias = await aliases.find(session, row.adapter.id, LIVE)
            assert alias is not None
            return weights_of(alias)

    async def lock(self, session: Any) -> Adapter:
        adapter = await catalog.lock_adapter(session, self.line, NAME)
        assert adapter is not None
        return adapter

    async def serve(self, version: int, num: int, outcome: str = "finished", **more: Any) -> None:
        """So many requests of a version end now."""
        now = datetime.now(UTC)
        fields = {"ttft_ms": 40, "load_ms": 0, **more}
        events = [
            make_event(
                tenant_id=self.line.tenant,
                base_id=self.line.base_id,
                adapter_name=NAME,
                adapter_version=version,
                artefact="a" * 64,
                outcome=outcome,
                ended_at=now,
                **fields,
            )
            for _ in range(num)
        ]
        async with self.db.system_session() as session:
            await insert_events(session, events)

    async def later(self, rollout: UUID, seconds: float) -> None:
        """As if the step had begun so much earlier."""
        async with self.db.system_session() as session:
            await session.execute(
                text(
                    "UPDATE rollouts SET step_began_at = step_began_at - make_interval(secs => :by)"
                    " WHERE id = :id"
                ),
                {"by": seconds, "id": rollout},
            )


@pytest.fixture
async def way(db: Database, redis: Redis, line: Line) -> Way:
    await add_versions(db, line, NAME, 3)
    examiner, hints, epochs = Answers(), NoHints(), Epochs(redis)
    principal = Principal(line.tenant, "acme", "k", frozenset(Scope), Limits(), Limits(), "salt", 0)

    def new_stepper() -> Stepper:
        return Stepper(db, epochs, hints, examiner)

    rollouts = Rollouts(db, epochs, line.base_id)
    return Way(db, line, rollouts, examiner, hints, new_stepper, principal, new_stepper())
