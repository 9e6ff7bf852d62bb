"""Wire types of shares."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, field

from gateway.catalog.names import LIVE, NAME_PATTERN
from gateway.paging import Page
from gateway.sharing.repository import SharedAdapter, SharedUse
from gateway.usage.zones import Window

MAX_REACHABLE = 16
EVERYONE = "all"
"""Stands in the path, and in what is told, where a tenant would: every other one."""

Reachable = Annotated[
    Annotated[list[Annotated[str, Meta(pattern=f"^{NAME_PATTERN}$")]], Meta(min_length=1, max_length=16)]
    | None,
    Meta(
        description="What may follow the @: names of aliases, and version numbers. `live` is what a bare"
        " owner/name answers with; null = every alias and every version that is ready."
    ),
]


class ShareIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reachable: Reachable = field(default_factory=lambda: [LIVE])


class ShareOut(msgspec.Struct, frozen=True, kw_only=True):
    """That one tenant, or every other, may use an adapter."""

    object: Literal["adapter.share"] = "adapter.share"
    adapter: str
    recipient: UUID | None  # null = every other tenant
    recipient_name: str  # "all" = every other
    reachable: list[str] | None  # null = every alias, every version that is ready
    created_at: datetime
    updated_at: datetime


class SharePage(Page[ShareOut], frozen=True, kw_only=True):
    data: list[ShareOut]


class ShareEnded(msgspec.Struct, frozen=True, kw_only=True):
    adapter: str
    recipient_name: str
    object: Literal["adapter.share.deleted"] = "adapter.share.deleted"
    deleted: bool = True


class SharedAdapterOut(msgspec.Struct, frozen=True, kw_only=True):
    """Another tenant's adapter that this one may use. What it is made of stays its owner's."""

    id: str  # what to write as `model`: owner/name
    object: Literal["shared_adapter"] = "shared_adapter"
    owner: str
    name: str
    base: str
    reachable: list[str] | None  # null = every alias, every version that is ready
    live: bool  # whether a bare owner/name answers now
    shared_at: datetime

    @classmethod
    def of(cls, shared: SharedAdapter, base: str) -> SharedAdapterOut:
        return cls(
            id=shared.model,
            owner=shared.owner,
            name=shared.name,
            base=base,
            reachable=shared.reachable,
            live=shared.live_at is not None,
            shared_at=shared.shared_at,
        )


class SharedAdapterPage(Page[SharedAdapterOut], frozen=True, kw_only=True):
    data: list[SharedAdapterOut]


class SharedUseRow(msgspec.Struct, frozen=True):
    """What one tenant used of one adapter on one day of the zone, and pays: billed requests and tokens."""

    day: date
    tenant: str  # its name
    adapter: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt tokens


class SharedUseReport(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of [start, end), by the end of the requests. `complete_until`: whatever ended before is in them;
    null = nobody knows yet."""

    first: date
    last: date
    zone: str
    start: datetime
    end: datetime
    complete_until: datetime | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    data: list[SharedUseRow]

    @classmethod
    def of(cls, window: Window, found: list[SharedUse], until: datetime | None) -> SharedUseReport:
        return cls(
            first=window.days[0],
            last=window.days[-1],
            zone=window.zone,
            start=window.start,
            end=window.end,
            complete_until=until,
            requests=sum(use.requests for use in found),
            prompt_tokens=sum(use.prompt_tokens for use in found),
            completion_tokens=sum(use.completion_tokens for use in found),
            cached_tokens=sum(use.cached_tokens for use in found),
            data=[
                SharedUseRow(
                    window.days[use.day],
                    use.tenant,
                    use.adapter,
                    use.requests,
                    use.prompt_tokens,
                    use.completion_tokens,
                    use.cached_tokens,
                )
                for use in found
            ],
        )
