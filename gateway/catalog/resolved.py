"""What a request's `model` stands for, once the catalog has allowed it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.principal import Limits, TenantId


@dataclass(frozen=True, slots=True)
class ResolvedAdapter:
    """One version of an adapter. Below the catalog only `artefact` and `owner` matter."""

    name: str
    version: int
    artefact: str  # artefact id, 64 hex
    owner: TenantId
    limits: Limits = field(default_factory=Limits)  # of its name, in whichever version
    owner_name: str | None = None  # of an adapter that another tenant shares
    digests: frozenset[str] | None = None  # weights that it was proved on; None = from before proofs

    @property
    def label(self) -> str:
        """What its user calls it: `name`, or `owner/name` of one that is shared."""
        return self.name if self.owner_name is None else f"{self.owner_name}/{self.name}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The base alone (`adapter` None), or an adapter over it."""

    model: str  # as the client wrote it: the engine echoes it
    base_id: str
    adapter: ResolvedAdapter | None

    @property
    def version_label(self) -> str:
        """The version as headers, journal and ledger name it: `name@3`, or "" for the base."""
        return f"{self.adapter.name}@{self.adapter.version}" if self.adapter is not None else ""
