"""What follows from a verdict: the report, the version's state, its alias, the audit log, the webhook event
and the tenant's epoch, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import func

from gateway.audit.service import SYSTEM, Change, record
from gateway.catalog import repository as catalog
from gateway.catalog.told import state_changed
from gateway.db import TenantWrite
from gateway.models import Adapter, AdapterVersion, VersionState
from gateway.proofs import repository
from gateway.proofs.acceptance import AcceptanceResult
from gateway.proofs.repository import Held
from gateway.replicas.driver import EngineVerdict
from gateway.tenants.epochs import bump

ACCEPTANCE = "acceptance"
"""The name of the check that prompts of an upload make."""


class Outcome(StrEnum):
    READY = "ready"  # it passed
    REJECTED = "rejected"  # it did not, and may serve nowhere
    FAILED = "failed"  # it did not on these weights, and goes on with others
    PUT_OFF = "put_off"  # no verdict; tried again later
    LOST = "lost"  # somebody else's, or nobody's any more


@dataclass(frozen=True, slots=True)
class Proof:
    """All that was found."""

    verdict: EngineVerdict
    replica: str
    acceptance: AcceptanceResult | None

    @property
    def passed(self) -> bool:
        return self.verdict.passed and (self.acceptance is None or self.acceptance.passed)

    @property
    def reason(self) -> str | None:
        """Why it did not pass, for people; begins with the name of the check."""
        if not self.verdict.passed:
            failed = next((check for check in self.verdict.checks if not check.passed), None)
            return "the replica's checks failed" if failed is None else f"{failed.name}: {failed.message}"
        if self.acceptance is not None and not self.acceptance.passed:
            return f"{ACCEPTANCE}: {self.acceptance.told}"
        return None

    @property
    def report(self) -> dict[str, Any]:
        said = self.verdict
        return {
            "checks": msgspec.to_builtins(said.checks),
            "load_ms": said.load_ms,
            "tier": said.tier,
            "replica_ms": said.replica_ms,
            "total_ms": said.total_ms,
            "replica": self.replica,
            "acceptance": None if self.acceptance is None else msgspec.to_builtins(self.acceptance),
        }


@dataclass(frozen=True, slots=True)
class Concluded:
    """`epoch`: the tenant's after it; None: nothing changed that is resolved. `drops_bytes`: the artefact is
    to leave store and replicas."""

    outcome: Outcome
    epoch: int | None = None
    drops_bytes: bool = False


async def conclude(session: TenantWrite, held: Held, proof: Proof) -> Concluded:
    """Without effect when the task is no longer held, or the version was retired meanwhile."""
    version = await repository.lock_held(session, held)
    if version is None or version.state == VersionState.RETIRED:
        return Concluded(Outcome.LOST)
    key, digest = held.key, proof.verdict.base_digest
    found = {"base_digest": digest, "passed": proof.passed, "longest": held.longest}
    await repository.write_proof(session, key, {**found, "reason": proof.reason, "report": proof.report})
    await repository.end_task(session, key)
    if proof.passed:
        return await _passed(session, held, version, proof)
    if version.ready_at is not None and await repository.has_passed(session, version.id, digest):
        _record(session, held, "adapter.proof_failed", proof)
        return Concluded(Outcome.FAILED, await bump(session, key.tenant))
    return await _rejected(session, held, version, proof)


async def _passed(session: TenantWrite, held: Held, version: AdapterVersion, proof: Proof) -> Concluded:
    first = version.ready_at is None
    changed = version.state != VersionState.READY
    version.state, version.reason = VersionState.READY, None
    if first:
        version.ready_at = func.now()
        await session.flush()
        await _move_alias(session, held, version)
    if changed:
        await state_changed(session, held.key.tenant, held.name, held.number, "ready")
    _record(session, held, "adapter.ready" if changed else "adapter.proof", proof)
    return Concluded(Outcome.READY, await bump(session, held.key.tenant))


async def _move_alias(session: TenantWrite, held: Held, version: AdapterVersion) -> None:
    """Of two uploads, the later one has it, whichever was proved first."""
    alias = version.moves_alias
    if alias is None:
        return
    points_to = await repository.alias_target(session, held.adapter_id, alias)
    if points_to is None or points_to < version.number:
        adapter = await session.get_one(Adapter, version.adapter_id)
        await catalog.move_alias(session, adapter, alias, version.number)


async def _rejected(session: TenantWrite, held: Held, version: AdapterVersion, proof: Proof) -> Concluded:
    version.state, version.reason = VersionState.REJECTED, proof.reason
    await session.flush()
    await state_changed(session, held.key.tenant, held.name, held.number, "rejected")
    _record(session, held, "adapter.reject", proof)
    epoch = await bump(session, held.key.tenant)
    return Concluded(Outcome.REJECTED, epoch, drops_bytes=version.ready_at is None)


def _record(session: TenantWrite, held: Held, action: str, proof: Proof) -> None:
    details = {
        "base_digest": proof.verdict.base_digest,
        "replica": proof.replica,
        "longest": held.longest,
        "reason": proof.reason,
    }
    record(session, SYSTEM, Change(action, held.label, held.key.tenant, details))
