"""What this replica holds of an adapter, looked at and not remembered; and holding nothing of it any more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from adapters.disk_cache import files_of
from engine.core.protocol import AdapterRef
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError, unavailable

LOOK_S: Final = 0.05
ASK_AGAIN_S: Final = 1.0
"""After so long the core is told again: a file that was being read is not deleted the first time."""


class Holding(msgspec.Struct, frozen=True):
    """An adapter by tier."""

    artefact: str
    device: bool  # in a slot
    host: bool  # in host memory, or on its way there
    disk: bool  # a file in the cache folder, whole or not
    requests: int  # that want it

    @property
    def is_gone(self) -> bool:
        return not (self.device or self.host or self.disk or self.requests)


async def what_is_held(client: CoreClient, cache_dir: Path, artefact: str) -> Holding:
    core = await client.residency(artefact)
    files = await asyncio.to_thread(files_of, cache_dir, artefact)
    return Holding(
        artefact,
        device=core.device,
        host=core.host or core.loading,
        disk=bool(files),
        requests=core.requests,
    )


async def purge_adapter(client: CoreClient, cache_dir: Path, adapter: AdapterRef, wait_s: float) -> None:
    """Returns once no byte of it is on any tier. Raises 409 while requests want it, 503 while anything else
    is left, when that has not ended within `wait_s`."""
    until, asked = time.monotonic() + wait_s, float("-inf")
    while True:
        now = time.monotonic()
        if now - asked >= ASK_AGAIN_S:
            client.retire(adapter)
            asked = now
        held = await what_is_held(client, cache_dir, adapter.artefact)
        if held.is_gone:
            return
        if now >= until:
            raise _still_held(held)
        await asyncio.sleep(LOOK_S)


def _still_held(held: Holding) -> EngineError:
    if held.requests:
        message = f"{held.requests} requests still run on the adapter or wait for it."
        return EngineError(409, message, kind="invalid_request_error", code="adapter_in_use")
    where = [name for name in ("device", "host", "disk") if getattr(held, name)]
    return unavailable(f"The adapter is still held: {', '.join(where)}.", "adapter_not_purged", 5.0)
