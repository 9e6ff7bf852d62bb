"""What a change is of, and who may hear of it: whoever may read what changed, by the table of roles.

A change names no more than what to read again. What stands in the audit log or is told to webhooks has its
kind here, by the noun before the dot; what is not in this table goes out to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from gateway.actions import TENANT, Call
from gateway.principal import Role
from gateway.roles import roles_of
from gateway.webhooks.kinds import EventKind

Kind = Literal[
    "account",
    "adapter",
    "alias",
    "base",
    "billing",
    "key",
    "limits",
    "member",
    "move",
    "placement",
    "pool_rules",
    "price_book",
    "replica",
    "rollout",
    "store",
    "tenant",
    "webhook",
]

READ_BY: Final[dict[Kind, Call]] = {
    "account": Call("GET", "/api/v1/audit"),
    "adapter": Call("GET", f"{TENANT}/adapters"),
    "alias": Call("GET", f"{TENANT}/adapters/{{name}}/aliases"),
    "base": Call("GET", "/api/v1/bases"),
    "billing": Call("GET", f"{TENANT}/billing/exports"),
    "key": Call("GET", f"{TENANT}/keys"),
    "limits": Call("GET", f"{TENANT}/limits"),
    "member": Call("GET", f"{TENANT}/members"),
    "move": Call("GET", "/api/v1/placement/moves"),
    "placement": Call("GET", f"{TENANT}/adapters/{{name}}/placement"),
    "pool_rules": Call("GET", "/api/v1/pool-rules"),
    "price_book": Call("GET", "/api/v1/price-books"),
    "replica": Call("GET", "/api/v1/replicas"),
    "rollout": Call("GET", f"{TENANT}/adapters/{{name}}/rollouts"),
    "store": Call("GET", "/api/v1/store"),
    "tenant": Call("GET", TENANT),
    "webhook": Call("GET", f"{TENANT}/webhooks"),
}
"""The route by which what changed is read; who reaches it hears of the change."""


def heard_by(kind: Kind, role: Role) -> bool:
    return role in roles_of(*READ_BY[kind])


def _nothing(_target: str) -> list[str]:
    return []


def _itself(target: str) -> list[str]:
    return [target]


def _adapter(target: str) -> list[str]:
    """`name`, `name@version` and `name@alias`."""
    return [target.partition("@")[0]]


def _rollout(target: str) -> list[str]:
    """`name@alias/id`."""
    adapter, _, rest = target.partition("@")
    return [adapter, rest.rpartition("/")[2]]


@dataclass(frozen=True, slots=True)
class Noun:
    """Of the audit log. `objects`: what its target says of them, in the words of the API."""

    kind: Kind
    objects: Callable[[str], list[str]] = _nothing


NOUNS: Final[dict[str, Noun]] = {
    "admin": Noun("account"),
    "adapter": Noun("adapter", _adapter),
    "alias": Noun("alias", _adapter),
    "api_key": Noun("key"),  # a role may list fewer keys than there are
    "base": Noun("base", _itself),
    "billing_period": Noun("billing"),
    "caches": Noun("tenant"),
    "export": Noun("billing"),
    "limits": Noun("limits"),
    "member": Noun("member"),
    "placement": Noun("placement", _itself),
    "placement_quota": Noun("placement"),
    "pool_rules": Noun("pool_rules"),
    "price_book": Noun("price_book"),
    "replica": Noun("replica", _itself),
    "retention": Noun("tenant"),
    "rollout": Noun("rollout", _rollout),
    "store": Noun("store"),
    "tenant": Noun("tenant"),
    "usage": Noun("billing"),
    "webhook": Noun("webhook"),
    "weights": Noun("base", _itself),
}
WITHOUT_NAME: Final = frozenset({"adapter.purged", "adapter.lost", "adapter.found"})
"""Whose target is an artefact."""

TOLD: Final[dict[EventKind, tuple[Kind, str | None]]] = {
    EventKind.ADAPTER_STATE_CHANGED: ("adapter", "adapter"),
    EventKind.BUDGET_THRESHOLD: ("limits", None),
    EventKind.EXPORT_READY: ("billing", None),
    EventKind.EXPORT_FAILED: ("billing", None),
}
"""What webhooks tell of and the audit log does not, with the field of its data that names the object."""


def of_action(action: str, target: str) -> tuple[Kind, list[str]] | None:
    """Of an entry of the audit log; None: nobody is told."""
    noun = NOUNS.get(action.partition(".")[0])
    if noun is None:
        return None
    return noun.kind, [] if action in WITHOUT_NAME else noun.objects(target)
