"""HTTP of webhooks: a tenant's own, and for operators any tenant's."""

from __future__ import annotations

from uuid import UUID

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE
from gateway.audit.service import Actor
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


@post(OWN, opt=MAY, summary="Make a webhook; its secret is shown in this answer only")
async def create_webhook(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    data: JSONBody[EndpointIn],
) -> EndpointWithSecret:
    endpoint, secret = await services.webhooks.create(actor, principal.tenant, data)
    return EndpointWithSecret(endpoint, secret.text)


@get(OWN, opt=MAY, summary="Webhooks, oldest first")
async def list_webhooks(
    services: NamedDependency[Services], principal: NamedDependency[Principal]
) -> EndpointList:
    return EndpointList(await services.webhooks.list_of(principal.tenant))


@get(ONE, opt=MAY, summary="One webhook")
async def get_webhook(
    services: NamedDependency[Services], principal: NamedDependency[Principal], endpoint_id: FromPath[UUID]
) -> EndpointOut:
    return await services.webhooks.get(principal.tenant, endpoint_id)


@patch(ONE, opt=MAY, summary="Change a webhook, disable it, or make it active again")
async def change_webhook(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    data: JSONBody[EndpointChange],
) -> EndpointOut:
    return await services.webhooks.change(actor, principal.tenant, endpoint_id, data)


@delete(ONE, opt=MAY, status_code=200, summary="Delete a webhook with its deliveries")
async def delete_webhook(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
) -> EndpointOut:
    return await services.webhooks.delete(actor, principal.tenant, endpoint_id)


@post(
    [f"{path}/rotate" for path in ONE],
    opt=MAY,
    status_code=200,
    summary="Replace a webhook's secret; the new one is shown in this answer only",
)
async def rotate_webhook(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    data: JSONBody[Rotation],
) -> EndpointWithSecret:
    rotated = await services.webhooks.rotate(actor, principal.tenant, endpoint_id, data.overlap_h)
    return EndpointWithSecret(rotated[0], rotated[1].text)


@post([f"{path}/ping" for path in ONE], opt=MAY, status_code=202, summary="Send a webhook a ping")
async def ping_webhook(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
) -> DeliveryOut:
    return await services.webhooks.ping(actor, principal.tenant, endpoint_id)


@get([f"{path}/deliveries" for path in ONE], opt=MAY, summary="What was sent to a webhook, newest first")
async def list_deliveries(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    endpoint_id: FromPath[UUID],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> DeliveryPage:
    of = {"endpoint": endpoint_id}
    start = DELIVERIES.start(cursor, of)
    found = await services.webhooks.deliveries(principal.tenant, endpoint_id, start, limit + 1)
    cut = DELIVERIES.cut(found, limit, lambda pair: (pair[0].id,), of)
    return cut.fill(DeliveryPage, lambda pair: DeliveryOut.of(*pair))


@post(
    [f"{path}/deliveries/{{delivery_id:uuid}}/redeliver" for path in ONE],
    opt=MAY,
    status_code=202,
    summary="Send an event to a webhook once more",
)
async def redeliver(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    endpoint_id: FromPath[UUID],
    delivery_id: FromPath[UUID],
) -> DeliveryOut:
    return await services.webhooks.redeliver(actor, principal.tenant, endpoint_id, delivery_id)


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
