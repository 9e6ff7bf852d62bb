"""HTTP of limits: what is left, for a tenant's key; what is set, for operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, TypeVar
from uuid import UUID

from litestar import Request, Response, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from gateway.access import SCOPE
from gateway.api_keys.routes import within
from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.limits.schemas import (
    BucketsOut,
    BucketsPatch,
    LimitsNow,
    LimitsOut,
    LimitsPatch,
    Simulated,
)
from gateway.principal import Principal, Scope, TenantId
from gateway.services import Services

KeyId = Annotated[str, PathParameter(max_length=64, description="Public part of the key.")]
AdapterName = Annotated[str, PathParameter(max_length=192, description="Without a version.")]
MaybeModel = Annotated[str | None, QueryParameter(max_length=256, description="With its adapter's limits.")]
Told = TypeVar("Told", bound=BucketsOut)


@get("/v1/limits", opt={SCOPE: Scope.INFERENCE}, summary="What the key is held to, and what is left")
async def get_limits(
    services: NamedDependency[Services], principal: NamedDependency[Principal], model: MaybeModel = None
) -> LimitsNow:
    return await services.limit_reports.now(principal, model)


@post(
    "/v1/limits/simulate",
    status_code=200,
    opt={SCOPE: Scope.INFERENCE},
    summary="What a request would be told by the limits; takes nothing",
    description="The body is a request for a chat or a completion, or {model, prompt_tokens, max_tokens, n}.",
)
async def simulate(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    data: JSONBody[dict[str, Any]],
) -> Simulated:
    return await services.limit_reports.simulate(principal, data)


@get("/api/v1/tenants/{tenant:uuid}/limits", summary="A tenant's limits and budgets")
async def tenant_limits(services: NamedDependency[Services], tenant: FromPath[UUID]) -> Response[LimitsOut]:
    return _tagged(await services.limit_settings.of_tenant(TenantId(tenant)))


@get(
    "/api/v1/tenants/{tenant:uuid}/limits/now",
    summary="What is left of a tenant's own limits and budgets",
)
async def tenant_limits_now(
    services: NamedDependency[Services], principal: NamedDependency[Principal]
) -> LimitsNow:
    budgets = await services.limit_settings.budgets_of_tenant(principal.tenant)
    return await services.limit_reports.now(replace(principal, budgets=budgets), None)


@patch("/api/v1/tenants/{tenant:uuid}/limits", summary="Change a tenant's limits and budgets")
async def change_tenant_limits(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[LimitsPatch],
    if_match: IfMatch = None,
) -> Response[LimitsOut]:
    return _tagged(await services.limit_settings.change_tenant(actor, TenantId(tenant), data, if_match))


@get("/api/v1/tenants/{tenant:uuid}/keys/{key_id:str}/limits", summary="An API key's limits and budgets")
async def key_limits(
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    key_id: KeyId,
) -> Response[LimitsOut]:
    """Of those keys that whoever asks may see at all."""
    await services.keys.get(principal.tenant, key_id, within=within(request, principal))
    return _tagged(await services.limit_settings.of_key(TenantId(tenant), key_id))


@patch(
    "/api/v1/tenants/{tenant:uuid}/keys/{key_id:str}/limits", summary="Change an API key's limits and budgets"
)
async def change_key_limits(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    key_id: KeyId,
    data: JSONBody[LimitsPatch],
    if_match: IfMatch = None,
) -> Response[LimitsOut]:
    changed = await services.limit_settings.change_key(actor, TenantId(tenant), key_id, data, if_match)
    return _tagged(changed)


@get("/api/v1/tenants/{tenant:uuid}/adapters/{name:str}/limits", summary="An adapter's limits")
async def adapter_limits(
    services: NamedDependency[Services], tenant: FromPath[UUID], name: AdapterName
) -> Response[BucketsOut]:
    return _tagged(await services.limit_settings.of_adapter(TenantId(tenant), name))


@patch("/api/v1/tenants/{tenant:uuid}/adapters/{name:str}/limits", summary="Change an adapter's limits")
async def change_adapter_limits(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    name: AdapterName,
    data: JSONBody[BucketsPatch],
    if_match: IfMatch = None,
) -> Response[BucketsOut]:
    changed = await services.limit_settings.change_adapter(actor, TenantId(tenant), name, data, if_match)
    return _tagged(changed)


def _tagged(limits: Told) -> Response[Told]:
    return Response(limits, headers={"etag": tag_of(limits.fields())})


handlers = [
    get_limits,
    simulate,
    tenant_limits,
    tenant_limits_now,
    change_tenant_limits,
    key_limits,
    change_key_limits,
    adapter_limits,
    change_adapter_limits,
]
