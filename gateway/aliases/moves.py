"""The one way in which an alias is moved: its row, the audit log, the webhook and the tenant's epoch, in the
caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.aliases import repository
from gateway.aliases.spread import Spread, heaviest, spread_over
from gateway.audit.service import Actor, Change, record
from gateway.db import TenantRead, TenantWrite
from gateway.errors import Conflict
from gateway.ids import uuid7
from gateway.models import Adapter, Alias
from gateway.principal import TenantId
from gateway.tenants.epochs import bump
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish


def weights_of(alias: Alias) -> dict[int, int]:
    """Version → percent; one version has it all where there is no spread."""
    return {alias.version: 100} if alias.spread is None else Spread.of_row(alias.spread).weights


async def move(
    session: TenantWrite,
    actor: Actor,
    adapter: Adapter,
    before: Alias | None,
    name: str,
    weights: Mapping[int, int],
) -> tuple[Alias, int]:
    """Points `name` to `weights` (percent, 100 in all, ready versions); gives its row and the tenant's epoch,
    to be published after the commit. `before`: its row, read under the adapter's lock."""
    was = None if before is None else weights_of(before)
    old = None if before is None or before.spread is None else Spread.of_row(before.spread)
    alias = await repository.put(session, adapter, name, heaviest(weights), spread_over(weights, old))
    details = {"from": None if was is None else shown(was), "to": shown(weights)}
    tenant = TenantId(adapter.tenant_id)
    record(session, actor, Change("alias.move", f"{adapter.name}@{name}", tenant, details))
    return alias, await _tell(session, adapter, name, shown(weights), alias.revision)


async def drop(session: TenantWrite, actor: Actor, adapter: Adapter, alias: Alias) -> int:
    """Ends the alias; gives the tenant's epoch, to be published after the commit."""
    details = {"from": shown(weights_of(alias))}
    tenant = TenantId(adapter.tenant_id)
    record(session, actor, Change("alias.delete", f"{adapter.name}@{alias.name}", tenant, details))
    await repository.remove(session, alias)
    return await _tell(session, adapter, alias.name, None, None)


async def _tell(
    session: TenantWrite, adapter: Adapter, name: str, weights: dict[str, int] | None, revision: int | None
) -> int:
    told: dict[str, Any] = {"adapter": adapter.name, "alias": name, "weights": weights, "revision": revision}
    tenant = TenantId(adapter.tenant_id)
    once = f"{EventKind.ADAPTER_ALIAS_CHANGED}:{uuid7()}"
    await publish(session, tenant, EventKind.ADAPTER_ALIAS_CHANGED, told, once=once)
    return await bump(session, tenant)


async def require_unshared(session: TenantRead, adapter: Adapter, number: int) -> None:
    """A version that has a part of an alias is not retired under it: where its part went, nobody would have
    said. Raises `Conflict`."""
    if (alias := await repository.sharing(session, adapter.id, number)) is not None:
        message = f"Version {number} has a part of the alias '{alias}'. Point that elsewhere first."
        raise Conflict(message, param="number", code="version_in_use")


def shown(weights: Mapping[int, int]) -> dict[str, int]:
    """As JSON has them."""
    return {str(version): weights[version] for version in sorted(weights)}
