"""What the replica says of itself to routers and dashboards."""

from __future__ import annotations

import msgspec

from engine.core.protocol import Ready, Stats
from engine.server.core_client import CoreClient


class ReplicaState(msgspec.Struct, frozen=True):
    """`GET /internal/state`. `sequence` grows with every change seen by this process."""

    sequence: int
    ready: bool
    draining: bool
    failure: str | None
    model: str
    base_id: str | None
    base_digest: str | None
    open_requests: int
    open_limit: int
    core: Ready | None
    stats: Stats | None


class StateReport:
    def __init__(self, client: CoreClient, model: str, open_limit: int) -> None:
        self._client = client
        self._model = model
        self._open_limit = open_limit
        self._sequence = 0

    def json(self) -> bytes:
        self._sequence += 1
        client = self._client
        core = client.ready.result() if client.ready.done() else None
        return msgspec.json.encode(
            ReplicaState(
                sequence=self._sequence,
                ready=core is not None and client.failure is None and not client.draining,
                draining=client.draining,
                failure=client.failure,
                model=self._model,
                base_id=core.base_id if core else None,
                base_digest=core.base_digest if core else None,
                open_requests=client.num_open,
                open_limit=self._open_limit,
                core=core,
                stats=client.stats,
            )
        )
