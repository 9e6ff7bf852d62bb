"""Wire types of webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.actions import TENANT, Call, allowed
from gateway.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from gateway.paging import Page
from gateway.principal import Role
from gateway.webhooks.destinations import MAX_URL_CHARACTERS

MOST_OVERLAP_H = 168

Url = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=MAX_URL_CHARACTERS,
        description="https://, on the public internet, unless the operator lets in more.",
    ),
]
Kind = Literal[
    "adapter.alias_changed",
    "adapter.share_changed",
    "adapter.state_changed",
    "budget.threshold",
    "export.failed",
    "export.ready",
    "key.created",
    "key.revoked",
    "key.rotated",
    "rollout.changed",
]
Kinds = Annotated[
    Annotated[list[Kind], Meta(min_length=1, max_length=64)] | None,
    Meta(description="What it is told of; null = everything, also what is added later."),
]
Description = Annotated[str, Meta(max_length=200)]
Status = Literal["active", "disabled"]


class EndpointIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    url: Url
    description: Description = ""
    kinds: Kinds = None


class EndpointChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is absent stays. `active` for one that was disabled begins anew; what failed is sent again only
    when asked for."""

    url: Url | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    kinds: Kinds | UnsetType = UNSET
    status: Status | UnsetType = UNSET

    @staticmethod
    def fields_of(shown: EndpointOut) -> dict[str, Any]:
        """What it may change, as it is."""
        return {name: getattr(shown, name) for name in EndpointChange.__struct_fields__}


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For `overlap_h` hours both secrets sign. 0: the old one is not to be trusted any more."""

    overlap_h: Annotated[int, Meta(ge=0, le=MOST_OVERLAP_H)] = 24


EndpointAction = Literal["change", "delete", "rotate", "ping", "list_deliveries"]
_ENDPOINT = f"{TENANT}/webhooks/{{endpoint_id}}"
ACTIONS: Final[Mapping[EndpointAction, Call]] = {
    "change": Call("PATCH", _ENDPOINT),
    "delete": Call("DELETE", _ENDPOINT),
    "rotate": Call("POST", f"{_ENDPOINT}/rotate"),
    "ping": Call("POST", f"{_ENDPOINT}/ping"),
    "list_deliveries": Call("GET", f"{_ENDPOINT}/deliveries"),
}
DeliveryAction = Literal["redeliver"]
DELIVERY_ACTIONS: Final[Mapping[DeliveryAction, Call]] = {
    "redeliver": Call("POST", f"{_ENDPOINT}/deliveries/{{delivery_id}}/redeliver"),
}


class EndpointOut(msgspec.Struct, frozen=True, kw_only=True):
    """`url` null: it can't be opened, for the key that sealed it is gone; set it again. `can`: what whoever
    asks may do with it; one that is disabled is not pinged."""

    id: UUID
    url: str | None
    description: str
    kinds: list[str] | None
    status: Status
    disabled_reason: str | None
    failing_since: datetime | None  # null = its last answer was good, or there was none yet
    previous_secret_until: datetime | None
    created_at: datetime
    updated_at: datetime
    can: list[EndpointAction]

    @classmethod
    def of(cls, endpoint: WebhookEndpoint, url: str | None) -> EndpointOut:
        return cls(
            id=endpoint.id,
            url=url,
            description=endpoint.description,
            kinds=endpoint.kinds,
            status="active" if endpoint.status == "active" else "disabled",
            disabled_reason=endpoint.disabled_reason,
            failing_since=endpoint.failing_since,
            previous_secret_until=endpoint.previous_until,
            created_at=endpoint.created_at,
            updated_at=endpoint.updated_at,
            can=[],  # until it is known who asks
        )

    def seen_by(self, role: Role | None) -> EndpointOut:
        """With what that role may do."""
        without = () if self.status == "active" else ("ping",)
        return msgspec.structs.replace(self, can=allowed(ACTIONS, role, without=without))


class EndpointWithSecret(msgspec.Struct, frozen=True):
    """`secret` is shown in this answer only."""

    endpoint: EndpointOut
    secret: str


class EndpointList(msgspec.Struct, frozen=True):
    data: list[EndpointOut]


class DeliveryOut(msgspec.Struct, frozen=True, kw_only=True):
    """`last_*` are of the last try. `next_at`: of the next, while it is waited for. `can`: what whoever asks
    may do with it."""

    id: UUID
    event_id: UUID  # the `webhook-id`
    kind: str
    data: dict[str, Any]
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    next_at: datetime | None
    last_status: int | None
    last_error: str | None
    last_ms: int | None
    created_at: datetime
    finished_at: datetime | None
    can: list[DeliveryAction]

    @classmethod
    def of(cls, row: WebhookDelivery, event: WebhookEvent) -> DeliveryOut:
        return msgspec.convert(
            {
                "id": row.id,
                "event_id": event.id,
                "kind": event.kind,
                "data": event.data,
                "state": row.state,
                "attempts": row.attempts,
                "next_at": row.next_at if row.state == "waiting" else None,
                "last_status": row.last_status,
                "last_error": row.last_error,
                "last_ms": row.last_ms,
                "created_at": row.created_at,
                "finished_at": row.finished_at,
                "can": [],  # until it is known who asks
            },
            cls,
        )

    def seen_by(self, role: Role | None, active: bool = True) -> DeliveryOut:
        """With what that role may do; `active`: its endpoint is."""
        without = () if active and self.state != "waiting" else DELIVERY_ACTIONS
        return msgspec.structs.replace(self, can=allowed(DELIVERY_ACTIONS, role, without=without))


class DeliveryPage(Page[DeliveryOut], frozen=True, kw_only=True):
    data: list[DeliveryOut]
