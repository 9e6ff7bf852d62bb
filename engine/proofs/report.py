"""What is asked of a proof and what it answers, on the wire."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    artefact: str
    owner: str
    longest: bool = False  # also at the longest context


class CheckName(StrEnum):
    LOADS = "loads"
    DIFFERS = "differs"
    DENSE = "dense"
    FINITE = "finite"
    FINITE_LONGEST = "finite_longest"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at. Those that a failed one makes meaningless are left out."""

    name: CheckName
    passed: bool
    figure: float | None
    bound: float | None
    message: str


class Report(msgspec.Struct, frozen=True):
    """A verdict on an adapter."""

    artefact: str
    base_digest: str
    passed: bool
    checks: list[Check]
    load_ms: float
    tier: str  # where the adapter was found
    replica_ms: float  # of the engine's steps: the proof's part of them, by tokens
    total_ms: float
