"""What a tenant's webhooks are told of its adapters."""

from __future__ import annotations

from gateway.db import TenantWrite
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish


async def state_changed(
    session: TenantWrite, tenant: TenantId, name: str, version: int | None, state: str
) -> None:
    """`version` None: the whole adapter. `state`: a version's, `purged` or `lost`."""
    told = {"adapter": name, "version": version, "state": state}
    once = f"{EventKind.ADAPTER_STATE_CHANGED}:{uuid7()}"  # each change is one: names may come again
    await publish(session, tenant, EventKind.ADAPTER_STATE_CHANGED, told, once=once)
