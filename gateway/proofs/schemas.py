"""What a version's report looks like."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from gateway.models import AdapterProof, ProofTask
from gateway.proofs.acceptance import Acceptance, AcceptanceResult
from gateway.proofs.facts import Facts
from gateway.proofs.service import Report
from gateway.replicas.driver import Check


class ProveIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    longest: bool = False  # at the longest context that the base takes, too


class WeightsProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica with these weights of the base found."""

    base_digest: str
    passed: bool
    reason: str | None  # why not; begins with the name of the check
    longest: bool
    checks: list[Check]
    acceptance: AcceptanceResult | None
    load_ms: float
    tier: str
    replica_ms: float  # of the replica's steps
    total_ms: float
    proved_at: datetime

    @classmethod
    def of(cls, proof: AdapterProof) -> WeightsProof:
        said = {name: value for name, value in proof.report.items() if name != "replica"}
        return cls(
            base_digest=proof.base_digest,
            passed=proof.passed,
            reason=proof.reason,
            longest=proof.longest,
            proved_at=proof.proved_at,
            **msgspec.convert(said, _Said).fields(),
        )


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    checks: list[Check]
    acceptance: AcceptanceResult | None
    load_ms: float
    tier: str
    replica_ms: float
    total_ms: float

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class WaitingProof(msgspec.Struct, frozen=True, kw_only=True):
    """A proof that is to do."""

    base_digest: str | None  # null = on any weights that may serve
    longest: bool
    running: bool  # somebody is at it, or was when it died less than half a minute ago
    tries: int  # that came to no verdict
    reason: str | None  # of the last of them: no_replica, replica_busy, …
    not_before: datetime

    @classmethod
    def of(cls, task: ProofTask) -> WaitingProof:
        return cls(
            base_digest=task.base_digest or None,
            longest=task.longest,
            running=task.holder is not None,
            tries=task.tries,
            reason=task.reason,
            not_before=task.not_before,
        )


class ProofOut(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # name@number
    object: Literal["adapter.proof"] = "adapter.proof"
    adapter: str
    version: int
    state: str
    reason: str | None  # why it was rejected
    base: str
    uploaded_at: datetime
    ready_at: datetime | None
    facts: Facts | None  # null for versions of before there were reports
    acceptance: Acceptance | None  # the prompts that came with it
    proofs: list[WeightsProof]  # newest first, one for each set of weights
    waiting: list[WaitingProof]

    @classmethod
    def of(cls, report: Report, base: str) -> ProofOut:
        name, version = report.adapter.adapter.name, report.version
        return cls(
            id=f"{name}@{version.number}",
            adapter=name,
            version=version.number,
            state=version.state,
            reason=version.reason,
            base=base,
            uploaded_at=version.created_at,
            ready_at=version.ready_at,
            facts=None if report.facts is None else msgspec.convert(report.facts, Facts),
            acceptance=None if report.acceptance is None else msgspec.convert(report.acceptance, Acceptance),
            proofs=[WeightsProof.of(proof) for proof in report.proofs],
            waiting=[WaitingProof.of(task) for task in report.tasks],
        )
