"""What the replica says of itself to routers and dashboards."""

from __future__ import annotations

import msgspec

from engine.core.protocol import Ready, Stats
from engine.server.core_client import CoreClient


class ReplicaState(msgspec.Struct, frozen=True):
    """`GET /internal/state`, after its `sequence`."""

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
    """`sequence` is 1 at first and one more whenever anything has changed since the report before, so that
    all who watch see the same state under the same number."""

    def __init__(self, client: CoreClient, model: str, open_limit: int) -> None:
        self._client = client
        self._model = model
        self._open_limit = open_limit
        self._sequence = 0
        self._body = b""

    def report(self) -> tuple[int, bytes]:
        """The sequence number, and the JSON of the whole state with the number in it."""
        body = msgspec.json.encode(self._state())
        if body != self._body:
            self._body = body
            self._sequence += 1
        return self._sequence, b'{"sequence":%d,%b' % (self._sequence, body[1:])

    def _state(self) -> ReplicaState:
        client = self._client
        core = client.ready.result() if client.ready.done() else None
        return ReplicaState(
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
