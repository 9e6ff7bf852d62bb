"""HTTP of webhooks: a tenant's own, and for operators any tenant's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE, role_of
from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.services import Services
from gateway.webhooks.repository import DELIVERIES
from gateway.webhooks.schemas import (
    DeliveryOut,
    DeliveryPage,
    EndpointChange,
    EndpointIn,
    EndpointList,
    EndpointOut,
    EndpointWithSecret,
    Rotation,
)

OWN = ["/v1/webhooks", "/api/v1/tenants/{tenant:uuid}/webhooks"]
ONE = [f"{path}/{{endpoint_id:uuid}}" for path in OWN]
MAY: dict[str, object] = {SCOPE: Scope.WEBHOOKS}
AnyRequest = Request[Any, Any, Any]


@post(OWN, opt=MAY, summary="Make a webhook; its secret is shown in this answer only")
async def create_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    data: JSONBody[EndpointIn],
) -> EndpointWithSecret:
    endpoint, secret = await services.webhooks.create(actor, principal.tenant, data)
    return EndpointWithSecret(endpoint.seen_by(role_of(request.scope)), secret.text)


@get(OWN, opt=MAY, summary="Webhooks, oldest first")
async def list_webhooks(
    request: AnyRequest, services: NamedDependency[Services], principal: NamedDependency[Principal]
) -> EndpointList:
    role = role_of(request.scope)
    return EndpointList([each.seen_by(role) for each in await services.webhooks.list_of(principal.tenant)])


@get(ONE, opt=MAY, summary="One webhook")
async def get_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    endpoint_id: FromPath[UUID],
) -> Response[EndpointOut]:
    return _tagged(request, await services.webhooks.get(principal.tenant, endpoint_id))


@patch(ONE, opt=MAY, summary="Change a webhook, disable it, or make it active again")
async def change_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    data: JSONBody[EndpointChange],
    if_match: IfMatch = None,
) -> Response[EndpointOut]:
    changed = await services.webhooks.change(actor, principal.tenant, endpoint_id, data, if_match)
    return _tagged(request, changed)


@delete(ONE, opt=MAY, status_code=200, summary="Delete a webhook with its deliveries")
async def delete_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
) -> EndpointOut:
    deleted = await services.webhooks.delete(actor, principal.tenant, endpoint_id)
    return deleted.seen_by(role_of(request.scope))


@post(
    [f"{path}/rotate" for path in ONE],
    opt=MAY,
    status_code=200,
    summary="Replace a webhook's secret; the new one is shown in this answer only",
)
async def rotate_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    data: JSONBody[Rotation],
) -> EndpointWithSecret:
    rotated = await services.webhooks.rotate(actor, principal.tenant, endpoint_id, data.overlap_h)
    return EndpointWithSecret(rotated[0].seen_by(role_of(request.scope)), rotated[1].text)


@post([f"{path}/ping" for path in ONE], opt=MAY, status_code=202, summary="Send a webhook a ping")
async def ping_webhook(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
) -> DeliveryOut:
    told = await services.webhooks.ping(actor, principal.tenant, endpoint_id)
    return told.seen_by(role_of(request.scope))


@get([f"{path}/deliveries" for path in ONE], opt=MAY, summary="What was sent to a webhook, newest first")
async def list_deliveries(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    endpoint_id: FromPath[UUID],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> DeliveryPage:
    of = {"endpoint": endpoint_id}
    start = DELIVERIES.start(cursor, of)
    found = await services.webhooks.deliveries(principal.tenant, endpoint_id, start, limit + 1)
    cut = DELIVERIES.cut(found.rows, limit, lambda pair: (pair[0].id,), of)
    role = role_of(request.scope)
    return cut.fill(DeliveryPage, lambda pair: DeliveryOut.of(*pair).seen_by(role, found.active))


@post(
    [f"{path}/deliveries/{{delivery_id:uuid}}/redeliver" for path in ONE],
    opt=MAY,
    status_code=202,
    summary="Send an event to a webhook once more",
)
async def redeliver(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    delivery_id: FromPath[UUID],
) -> DeliveryOut:
    again = await services.webhooks.redeliver(actor, principal.tenant, endpoint_id, delivery_id)
    return again.seen_by(role_of(request.scope))


def _tagged(request: AnyRequest, shown: EndpointOut) -> Response[EndpointOut]:
    headers = {"etag": tag_of(EndpointChange.fields_of(shown))}
    return Response(shown.seen_by(role_of(request.scope)), headers=headers)


handlers = [
    create_webhook,
    list_webhooks,
    get_webhook,
    change_webhook,
    delete_webhook,
    rotate_webhook,
    ping_webhook,
    list_deliveries,
    redeliver,
]
