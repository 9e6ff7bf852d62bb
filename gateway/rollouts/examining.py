"""Where a rollout's new version is examined before a step; `gateway/proofs/answering.py` asks and judges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from gateway.proofs.acceptance import Acceptance, AcceptanceResult, Given, Judge
from gateway.proofs.answering import Examinee, NotLoaded, run_acceptance
from gateway.proofs.choice import choose_prover
from gateway.proofs.repository import ANY_WEIGHTS
from gateway.replicas.driver import UpstreamFailed
from gateway.replicas.registry import Registry

log = structlog.get_logger(__name__)

MAX_REPLICAS: Final = 3
"""Asked one after the other, until one gives a verdict."""


class Examiner(Protocol):
    async def __call__(self, who: Examinee, acceptance: Acceptance) -> AcceptanceResult | None:
        """None: no replica could say, which is nothing against the version."""
        ...


class ReplicaExaminer:
    """Asks replicas of `registry`, which `look` brings up to date."""

    def __init__(self, registry: Registry, look: Callable[[], Awaitable[int]]) -> None:
        self._registry = registry
        self._look = look

    async def __call__(self, who: Examinee, acceptance: Acceptance) -> AcceptanceResult | None:
        """What none of those that were asked could load did not pass: it would not serve."""
        await self._look()
        able = [each for each in self._registry.all if who.runs_on(each.view.base_digest)]
        errors: list[UpstreamFailed] = []
        while len(errors) < MAX_REPLICAS:
            replica = choose_prover(able, who.artefact, ANY_WEIGHTS, {})
            if replica is None:
                break
            able.remove(replica)
            try:
                return await run_acceptance(replica, who, acceptance)
            except UpstreamFailed as error:
                log.info("acceptance_unanswered", version=who.label, url=replica.url, reason=str(error))
                errors.append(error)
        if not errors or not all(isinstance(error, NotLoaded) for error in errors):
            return None
        judge = Judge(acceptance)
        judge.hear([Given(str(errors[0]), refused=True)] * len(acceptance.prompts))
        return judge.result
