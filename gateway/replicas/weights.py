"""Which replicas may serve a base: those that hold it, with weights that are known to be its own."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.replicas.driver import ReplicaView


@dataclass(frozen=True, slots=True)
class Weights:
    """`digests` None: any weights of the base. `base_id` None: anything, as tests of parts want it."""

    base_id: str | None = None
    digests: frozenset[str] | None = None

    def unfit(self, view: ReplicaView, *, vouched: bool) -> str | None:
        """Why a replica may not serve, None if it may. One that doesn't say what it holds may only if
        somebody vouched for it."""
        if self.base_id is None:
            return None
        if view.base_id is None:
            return None if vouched else "it does not say which base it holds"
        if view.base_id != self.base_id:
            return f"it holds another base, {view.base_id[:16]}"
        if self.digests is None or view.base_digest in self.digests:
            return None
        if view.base_digest is None:
            return None if vouched else "it does not say which weights it holds"
        return f"it holds other weights, {view.base_digest[:16]}"
