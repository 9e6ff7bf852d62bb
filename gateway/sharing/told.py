"""What audit logs and webhooks are told of shares: the owner's all of them, a recipient's its own, by names
only. What goes to every tenant is told to none of them, but to the platform's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gateway.audit.service import Actor, Change, record
from gateway.db import SystemWrite, TenantWrite
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.sharing.schemas import EVERYONE
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish

Happened = Literal["shared", "ended"]
_ACTIONS = {"shared": "adapter.share", "ended": "adapter.unshare"}


@dataclass(frozen=True, slots=True)
class Told:
    """A share as it is told of: `owner/name`, and with whom."""

    owner: TenantId
    owner_name: str
    adapter: str
    recipient: TenantId | None
    recipient_name: str
    reachable: list[str] | None = None

    @property
    def model(self) -> str:
        return f"{self.owner_name}/{self.adapter}"


async def tell_owner(
    session: TenantWrite | SystemWrite, actor: Actor, share: Told, happened: Happened
) -> None:
    details = {"with": share.recipient_name, **_reach(share, happened)}
    record(session, actor, Change(_ACTIONS[happened], share.adapter, share.owner, details))
    await _publish(session, share.owner, share, happened)


async def tell_recipient(session: SystemWrite, actor: Actor, share: Told, happened: Happened) -> None:
    """The platform's log instead, where that is every tenant."""
    details: dict[str, Any] = _reach(share, happened)
    if share.recipient is None:
        details["with"] = EVERYONE
    record(session, actor, Change(_ACTIONS[happened], share.model, share.recipient, details))
    if share.recipient is not None:
        await _publish(session, share.recipient, share, happened)


async def _publish(
    session: TenantWrite | SystemWrite, tenant: TenantId, share: Told, happened: Happened
) -> None:
    told = {"model": share.model, "with": share.recipient_name, "state": happened, **_reach(share, happened)}
    once = f"{EventKind.ADAPTER_SHARE_CHANGED}:{uuid7()}"  # each change is one
    await publish(session, tenant, EventKind.ADAPTER_SHARE_CHANGED, told, once=once)


def _reach(share: Told, happened: Happened) -> dict[str, Any]:
    return {"reachable": share.reachable} if happened == "shared" else {}
