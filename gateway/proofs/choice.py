"""Which replica proves a version: without any I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.replicas.placement import BUSY_TOKENS, rank
from gateway.replicas.replica import Replica


def choose_prover(
    replicas: Sequence[Replica], artefact: str, base_digest: str, proving: Mapping[str, int]
) -> Replica | None:
    """One that may serve, not a busy one if another is free; else the one with the least to do. Among free
    ones the adapter's likeliest home, so that it lies where it will be asked for. `base_digest` "": on any
    weights. `proving`: how many proofs this process has at each, by URL."""
    able = [
        replica
        for replica in replicas
        if replica.usable and (not base_digest or replica.view.base_digest == base_digest)
    ]
    if not able:
        return None
    homes = {replica: place for place, replica in enumerate(rank(artefact, able))}

    def cost(replica: Replica) -> tuple[int, int, int]:
        load = replica.in_flight_tokens + replica.elsewhere_tokens + replica.view.waiting_tokens
        busy = load if load >= BUSY_TOKENS else 0
        return proving.get(replica.url, 0), busy, homes[replica]

    return min(able, key=cost)
