"""HTTP of the audit log: operators only. Each route is there for the platform and for one tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from gateway.audit.chain import PLATFORM, Head
from gateway.audit.repository import BY_CHAIN, NEWEST_FIRST, EventFilters
from gateway.audit.schemas import EventOut, EventPage, HeadOut, HeadPage, LinkOut, VerdictOut
from gateway.errors import BadRequest
from gateway.paging import DEFAULT_LIMIT, EARLIER, PageCursor, PageLimit, Since, Until, moment
from gateway.principal import TenantId
from gateway.services import Services

ALL = "/api/v1/audit"
OF_TENANT = "/api/v1/tenants/{tenant:uuid}/audit"
JSON_LINES = "application/jsonl"

MAX_SEQ = 2**53
By = Annotated[  # `actor` is a dependency: whoever asks
    str | None, QueryParameter(name="actor", min_length=1, max_length=320, description="As `admin:<email>`.")
]
Target = Annotated[str | None, QueryParameter(min_length=1, max_length=320)]
OfTenant = Annotated[UUID | None, QueryParameter(name="tenant", description="What was changed of it only.")]
Action = Annotated[
    str | None, QueryParameter(min_length=1, max_length=100, description="What it begins with, as `tenant.`.")
]
Before = Annotated[UUID | None, QueryParameter(description=EARLIER)]
After = Annotated[int, QueryParameter(ge=0, le=MAX_SEQ, description="Place in the chain to begin behind.")]
KeptSeq = Annotated[int | None, QueryParameter(ge=1, le=MAX_SEQ, description="Of a head that was kept.")]
KeptHash = Annotated[
    str | None, QueryParameter(pattern="^[0-9a-f]{64}$", description="With `kept_seq`: that head's hash.")
]


def event_filters(
    by: By = None, action: Action = None, target: Target = None, since: Since = None, until: Until = None
) -> EventFilters:
    return EventFilters(None, by, action, target, moment(since, "since"), moment(until, "until"))


FILTERED = {"filters": Provide(event_filters, sync_to_thread=False)}


@get(ALL, summary="What was changed, newest first", dependencies=FILTERED)
async def list_events(
    services: NamedDependency[Services],
    filters: NamedDependency[EventFilters],
    of_tenant: OfTenant = None,
    cursor: PageCursor = None,
    before: Before = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> EventPage:
    return await _page(services, _of(filters, of_tenant), cursor, before, limit)


@get(OF_TENANT, summary="What was changed of a tenant, newest first", dependencies=FILTERED)
async def list_tenant_events(
    services: NamedDependency[Services],
    filters: NamedDependency[EventFilters],
    tenant: FromPath[UUID],
    cursor: PageCursor = None,
    before: Before = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> EventPage:
    return await _page(services, _of(filters, tenant), cursor, before, limit)


@get(f"{ALL}/heads", summary="Where each hash chain ends, to be kept elsewhere")
async def list_heads(
    services: NamedDependency[Services], cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> HeadPage:
    found = await services.audit.heads(BY_CHAIN.start(cursor), limit + 1)
    return BY_CHAIN.cut(found, limit, lambda head: (head.chain,)).fill(HeadPage, HeadOut.of)


@get(f"{ALL}/verify", summary="Walk the platform's hash chain; names the first broken place")
async def verify_platform(
    services: NamedDependency[Services],
    after: After = 0,
    kept_seq: KeptSeq = None,
    kept_hash: KeptHash = None,
) -> VerdictOut:
    return await _verify(services, PLATFORM, after, _kept(PLATFORM, kept_seq, kept_hash))


@get(f"{OF_TENANT}/verify", summary="Walk a tenant's hash chain; names the first broken place")
async def verify_tenant(
    services: NamedDependency[Services],
    tenant: FromPath[UUID],
    after: After = 0,
    kept_seq: KeptSeq = None,
    kept_hash: KeptHash = None,
) -> VerdictOut:
    return await _verify(services, tenant, after, _kept(tenant, kept_seq, kept_hash))


@get(f"{ALL}/export", summary="The platform's hash chain as JSON lines", media_type=JSON_LINES)
async def export_platform(services: NamedDependency[Services], after: After = 0) -> Stream:
    return _stream(services, PLATFORM, after)


@get(f"{OF_TENANT}/export", summary="A tenant's hash chain as JSON lines", media_type=JSON_LINES)
async def export_tenant(
    services: NamedDependency[Services], tenant: FromPath[UUID], after: After = 0
) -> Stream:
    return _stream(services, tenant, after)


async def _page(
    services: Services, wanted: EventFilters, cursor: str | None, before: UUID | None, limit: int
) -> EventPage:
    given = asdict(wanted)
    start = NEWEST_FIRST.start(cursor, given) or (None if before is None else (before,))
    found = await services.audit.events(wanted, start, limit + 1)
    return NEWEST_FIRST.cut(found, limit, lambda event: (event.id,), given).fill(EventPage, EventOut.of)


def _of(wanted: EventFilters, tenant: UUID | None) -> EventFilters:
    return wanted if tenant is None else replace(wanted, tenant=TenantId(tenant))


def _kept(chain: UUID, seq: int | None, digest: str | None) -> Head | None:
    if (seq is None) != (digest is None):
        raise BadRequest("'kept_seq' and 'kept_hash' go together.", param="kept_seq", code="invalid_value")
    return None if seq is None or digest is None else Head(chain, seq, bytes.fromhex(digest))


async def _verify(services: Services, chain: UUID, after: int, kept: Head | None) -> VerdictOut:
    return VerdictOut.of(await services.audit.verify(chain, after, kept))


def _stream(services: Services, chain: UUID, after: int) -> Stream:
    async def lines() -> AsyncIterator[bytes]:
        async for links in services.audit.export(chain, after):
            yield b"".join(msgspec.json.encode(LinkOut.of(chain, link)) + b"\n" for link in links)

    return Stream(lines(), headers={"content-disposition": f'attachment; filename="audit-{chain}.jsonl"'})


handlers = [
    list_events,
    list_tenant_events,
    list_heads,
    verify_platform,
    verify_tenant,
    export_platform,
    export_tenant,
]
