"""Proofs as a worker's requests see them: begun with an upload, waited for, told, and asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import structlog

from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository as catalog
from gateway.catalog.lifecycle import Lifecycle, adapter_not_found
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import AdapterRow, Line
from gateway.db import Database
from gateway.errors import Conflict, Unavailable
from gateway.models import AdapterProof, AdapterVersion, ProofTask, VersionState
from gateway.principal import Principal, TenantId
from gateway.proofs import repository
from gateway.proofs.places import ProofPlaces
from gateway.proofs.proving import Prover
from gateway.proofs.repository import TaskKey

log = structlog.get_logger(__name__)

MAX_BEGUN: Final = 256
"""Proofs that a worker has begun or has waiting; what comes beyond them is control's."""
PRIORITY: Final = 10
"""Of a proof that somebody asked for, before those that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known of a version. `facts` None: it is older than reports."""

    adapter: AdapterRow
    version: AdapterVersion
    facts: dict[str, Any] | None
    acceptance: dict[str, Any] | None
    proofs: Sequence[AdapterProof]
    tasks: Sequence[ProofTask]


class Proofs:
    """One a worker. `wait_s`: how long an upload's answer waits for its proof, at most."""

    def __init__(self, database: Database, prover: Prover, lifecycle: Lifecycle, wait_s: float) -> None:
        self._database = database
        self._prover = prover
        self._lifecycle = lifecycle
        self._places = ProofPlaces()
        self._begun: dict[UUID, asyncio.Task[None]] = {}
        self.wait_s = wait_s

    def begin(self, key: TaskKey, holder: UUID) -> None:
        """In the background. `holder`: under whom its task is held already."""
        if len(self._begun) >= MAX_BEGUN:
            log.warning("proof_left_to_control", version=str(key.version_id))
            return
        task = asyncio.create_task(self._prove(key, holder))
        self._begun[key.version_id] = task
        task.add_done_callback(lambda _: self._begun.pop(key.version_id, None))

    async def settle(
        self, tenant: TenantId, row: AdapterRow, version: AdapterVersion, wait_s: float
    ) -> tuple[AdapterRow, AdapterVersion]:
        """Both as they are once this worker's proof of the version is over, or after `wait_s`."""
        task = self._begun.get(version.id)
        if task is not None and wait_s > 0:
            await asyncio.wait({task}, timeout=min(wait_s, self.wait_s))
        line = Line(tenant, row.adapter.base_id)
        async with self._database.tenant_reader(tenant) as session:
            found = await catalog.find_adapter(session, line, row.adapter.name)
            now = await catalog.find_version(session, row.adapter, version.number)
        # gone when it was deleted meanwhile
        return found or row, now or version

    async def close(self) -> None:
        """What runs is left to control."""
        tasks = list(self._begun.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def report(self, principal: Principal, name: str, number: int) -> Report:
        """Raises `NotFound`."""
        page = await self._lifecycle.get_version(principal, name, number)
        version = page.versions[0]
        async with self._database.tenant_reader(principal.tenant) as session:
            return Report(
                page.adapter,
                version,
                await repository.facts_of(session, version.id),
                await repository.acceptance_of(session, version.id),
                await repository.proofs_of(session, version.id),
                await repository.tasks_of(session, version.id),
            )

    async def ask_again(
        self, principal: Principal, actor: Actor, name: str, number: int, *, longest: bool
    ) -> Report:
        """Has the version proved once more, at the longest context too if asked for; control does it within
        seconds. Raises `NotFound`, and `Conflict` for one whose bytes are gone."""
        if not may(principal, Action.CHANGE, name):
            raise adapter_not_found(name, number)
        version = (await self._lifecycle.get_version(principal, name, number)).versions[0]
        if version.state == VersionState.REJECTED and version.ready_at is None:
            raise Conflict(
                "It was rejected and its bytes are gone. Delete the version and upload it again.",
                code="version_rejected",
            )
        key = TaskKey(principal.tenant, version.id)
        async with self._database.tenant_session(principal.tenant) as session:
            await repository.add_task(session, key, longest=longest, priority=PRIORITY)
            label, details = f"{name}@{number}", {"longest": longest}
            record(session, actor, Change("adapter.prove", label, principal.tenant, details))
        return await self.report(principal, name, number)

    async def _prove(self, key: TaskKey, holder: UUID) -> None:
        try:
            async with self._places.one_of(key.tenant):
                await self._prover.prove(key, holder, patience_s=self.wait_s)
        except Unavailable as error:
            log.warning("proof_not_made", version=str(key.version_id), reason=error.message)
        except Exception:  # the upload itself stands; control tries again
            log.exception("proof_failed", version=str(key.version_id))
