"""HTTP of retention: operators only."""

from __future__ import annotations

from uuid import UUID

from litestar import Response, get, patch
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.retention.schemas import RetentionOut, RetentionPatch
from gateway.services import Services

RETENTION = "/api/v1/tenants/{tenant:uuid}/retention"


@get(RETENTION, summary="How long things of a tenant are kept")
async def get_retention(
    services: NamedDependency[Services], tenant: FromPath[UUID]
) -> Response[RetentionOut]:
    return _tagged(await services.retention.get(tenant))


@patch(RETENTION, summary="Keep a tenant's things for longer or shorter")
async def change_retention(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[RetentionPatch],
    if_match: IfMatch = None,
) -> Response[RetentionOut]:
    return _tagged(await services.retention.change(actor, tenant, data, if_match))


def _tagged(found: RetentionOut) -> Response[RetentionOut]:
    return Response(found, headers={"etag": tag_of(found.fields())})


handlers = [get_retention, change_retention]
