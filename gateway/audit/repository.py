"""All SQL of the audit log. It is appended to only (`service.record`), and linked by a trigger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, cast, exists, func, select
from sqlalchemy.types import Text

from gateway.audit.chain import PLATFORM, Head, Link, Recorded
from gateway.db import SystemRead
from gateway.models import AuditEvent, AuditLink
from gateway.paging import ById, Order, beyond, starts_with
from gateway.principal import TenantId

NEWEST_FIRST: Order[ById] = Order("audit", UUID)
BY_CHAIN: Order[ById] = Order("audit-chains", UUID)


@dataclass(frozen=True, slots=True)
class EventFilters:
    """None = any."""

    tenant: TenantId | None = None
    actor: str | None = None
    action: str | None = None  # begins with it: `tenant.` is all about tenants
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def events(
    session: SystemRead, wanted: EventFilters, after: ById | None, limit: int
) -> list[AuditEvent]:
    """Newest first; ids are UUIDv7, so they are the order."""
    statement = select(AuditEvent).where(*_conditions(wanted)).order_by(AuditEvent.id.desc()).limit(limit)
    if after is not None:
        statement = statement.where(beyond([AuditEvent.id], after, descending=True))
    return list((await session.scalars(statement)).all())


async def links(session: SystemRead, chain: UUID, after: int, limit: int) -> list[Link]:
    """Of one chain from behind place `after`, in order, each with what its event says now."""
    found = await session.execute(
        select(AuditLink, AuditEvent, cast(AuditEvent.details, Text).label("details_text"))
        .outerjoin(AuditEvent, AuditEvent.id == AuditLink.event_id)
        .where(AuditLink.chain == chain, AuditLink.seq > after)
        .order_by(AuditLink.seq)
        .limit(limit)
    )
    return [_link(link, event, details) for link, event, details in found]


async def first_unlinked(session: SystemRead, chain: UUID) -> UUID | None:
    """An event of the chain that no link names: it came in past the trigger."""
    linked = exists().where(AuditLink.event_id == AuditEvent.id)
    query = select(AuditEvent.id).where(_of_chain(chain), ~linked).order_by(AuditEvent.id).limit(1)
    return await session.scalar(query)


async def link_hash(session: SystemRead, chain: UUID, seq: int) -> bytes | None:
    query = select(AuditLink.hash).where(AuditLink.chain == chain, AuditLink.seq == seq)
    return await session.scalar(query)


async def head(session: SystemRead, chain: UUID) -> Head | None:
    query = select(AuditLink).where(AuditLink.chain == chain).order_by(AuditLink.seq.desc()).limit(1)
    last = await session.scalar(query)
    return None if last is None else Head(chain, last.seq, last.hash)


async def heads(session: SystemRead, after: ById | None, limit: int) -> list[Head]:
    """Of all chains, by chain."""
    ends = (
        select(AuditLink.chain, func.max(AuditLink.seq).label("seq"))
        .group_by(AuditLink.chain)
        .order_by(AuditLink.chain)
        .limit(limit)
    )
    if after is not None:
        ends = ends.where(beyond([AuditLink.chain], after, descending=False))
    last = ends.subquery()
    found = await session.scalars(
        select(AuditLink)
        .join(last, (AuditLink.chain == last.c.chain) & (AuditLink.seq == last.c.seq))
        .order_by(AuditLink.chain)
    )
    return [Head(link.chain, link.seq, link.hash) for link in found]


def _link(link: AuditLink, event: AuditEvent | None, details: str) -> Link:
    content = None if event is None else _recorded(event, details).content(link.chain, link.seq)
    return Link(link.seq, link.event_id, link.previous, link.hash, content)


def _recorded(event: AuditEvent, details: str) -> Recorded:
    return Recorded(
        id=event.id,
        tenant=event.tenant_id,
        actor=event.actor,
        action=event.action,
        target=event.target,
        details=details,
        request_id=event.request_id,
        created_at=event.created_at,
    )


def _of_chain(chain: UUID) -> ColumnElement[bool]:
    return AuditEvent.tenant_id.is_(None) if chain == PLATFORM else AuditEvent.tenant_id == chain


def _conditions(wanted: EventFilters) -> Sequence[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.tenant is not None:
        found.append(AuditEvent.tenant_id == wanted.tenant)
    if wanted.actor is not None:
        found.append(AuditEvent.actor == wanted.actor)
    if wanted.action is not None:
        found.append(starts_with(AuditEvent.action, wanted.action))
    if wanted.target is not None:
        found.append(AuditEvent.target == wanted.target)
    if wanted.since is not None:
        found.append(AuditEvent.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(AuditEvent.created_at < wanted.until)
    return found
