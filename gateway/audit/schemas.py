"""Wire types of the audit log. Hashes are hexadecimal."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from gateway.audit.chain import Broken, Head, Link
from gateway.audit.service import Verdict
from gateway.models import AuditEvent
from gateway.paging import Page

Reason = Literal["gap", "previous", "event_missing", "content", "head", "truncated", "unlinked"]


class EventOut(msgspec.Struct, frozen=True):
    id: UUID
    tenant: UUID | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]
    request_id: UUID | None
    created_at: datetime

    @classmethod
    def of(cls, event: AuditEvent) -> EventOut:
        return cls(
            id=event.id,
            tenant=event.tenant_id,
            actor=event.actor,
            action=event.action,
            target=event.target,
            details=event.details,
            request_id=event.request_id,
            created_at=event.created_at,
        )


class EventPage(Page[EventOut], frozen=True, kw_only=True):
    data: list[EventOut]


class HeadOut(msgspec.Struct, frozen=True):
    """The end of a chain: the tenant's, or with zeros the platform's. Kept elsewhere, it shows later whether
    the chain was cut or made anew."""

    chain: UUID
    seq: int
    hash: str

    @classmethod
    def of(cls, head: Head) -> HeadOut:
        return cls(head.chain, head.seq, head.hash.hex())


class HeadPage(Page[HeadOut], frozen=True, kw_only=True):
    data: list[HeadOut]


class BrokenOut(msgspec.Struct, frozen=True):
    """`gap`: a link is missing; `previous`: it does not follow the one before; `event_missing`; `content`:
    the event is not what was linked; `head`: not the one that was kept; `truncated`: shorter than it was;
    `unlinked`: an event outside of the chain."""

    seq: int
    event: UUID | None
    reason: Reason

    @classmethod
    def of(cls, broken: Broken) -> BrokenOut:
        return msgspec.convert({"seq": broken.seq, "event": broken.event, "reason": broken.reason}, cls)


class VerdictOut(msgspec.Struct, frozen=True, kw_only=True):
    """`head` is where the walk ended: while `complete` is false, its `seq` is the next call's `after`."""

    intact: bool
    complete: bool
    checked: int
    head: HeadOut
    broken: BrokenOut | None

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictOut:
        return cls(
            intact=verdict.broken is None,
            complete=verdict.complete,
            checked=verdict.checked,
            head=HeadOut(verdict.chain, verdict.seq, verdict.hash.hex()),
            broken=None if verdict.broken is None else BrokenOut.of(verdict.broken),
        )


class LinkOut(msgspec.Struct, frozen=True):
    """A line of an export: `hash` = SHA-256(bytes of `previous` ‖ UTF-8 of `content`), and `content` is a
    JSON array: chain, seq, event id, tenant, actor, action, target, details, request id, time."""

    chain: UUID
    seq: int
    event: UUID
    previous: str
    hash: str
    content: str | None

    @classmethod
    def of(cls, chain: UUID, link: Link) -> LinkOut:
        return cls(chain, link.seq, link.event, link.previous.hex(), link.hash.hex(), link.content)

    @property
    def link(self) -> Link:
        """Raises ValueError for what is no hexadecimal."""
        return Link(
            self.seq, self.event, bytes.fromhex(self.previous), bytes.fromhex(self.hash), self.content
        )
