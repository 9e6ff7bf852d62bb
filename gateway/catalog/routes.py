"""`/v1/models` and `/v1/adapters`, the latter also under `/api/v1/tenants/{tenant}` for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.types import Receive

from gateway.access import SCOPE, principal_of
from gateway.catalog.intake import Upload
from gateway.catalog.names import NAME_PATTERN, is_name
from gateway.catalog.pages import cut, name_cursor, page_query, version_cursor
from gateway.catalog.parts import boundary_of, check_length
from gateway.catalog.policy import Action, may
from gateway.catalog.schemas import (
    AdapterList,
    AdapterOut,
    Deleted,
    ModelList,
    ModelOut,
    VersionList,
    VersionOut,
)
from gateway.catalog.views import adapter_out, model_out, version_out
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal, Scope
from gateway.services import services_of

OF_TENANT = "/api/v1/tenants/{tenant:uuid}"

HttpRequest = Request[Any, Any, Any]


@get("/v1/models")
async def list_models(request: HttpRequest) -> ModelList:
    """The base and the tenant's own adapters."""
    models = await services_of(request.scope).catalog.list_models(principal_of(request.scope))
    return ModelList(data=[model_out(model) for model in models])


@get("/v1/models/{model:path}")
async def get_model(request: HttpRequest, model: str) -> ModelOut:
    """One of them: `name`, `name@3`, `owner/name`."""
    catalog = services_of(request.scope).catalog
    return model_out(await catalog.get_model(principal_of(request.scope), model.removeprefix("/")))


@get(["/v1/adapters", f"{OF_TENANT}/adapters"], opt={SCOPE: Scope.ADAPTERS_READ})
async def list_adapters(request: HttpRequest) -> AdapterList:
    """By name; `after` and `limit` page through them."""
    services, query = services_of(request.scope), page_query(request.query_params)
    after = name_cursor(query)
    rows = await services.lifecycle.list_adapters(principal_of(request.scope), after, query.limit + 1)
    page = cut(rows, query)
    return AdapterList(
        data=[adapter_out(row, services.catalog.base.name) for row in page.items],
        has_more=page.has_more,
        next=page.items[-1].adapter.name if page.has_more else None,
    )


@get(["/v1/adapters/{name:str}", f"{OF_TENANT}/adapters/{{name:str}}"], opt={SCOPE: Scope.ADAPTERS_READ})
async def get_adapter(request: HttpRequest, name: str) -> AdapterOut:
    services = services_of(request.scope)
    row = await services.lifecycle.get_adapter(principal_of(request.scope), name)
    return adapter_out(row, services.catalog.base.name)


@delete(
    ["/v1/adapters/{name:str}", f"{OF_TENANT}/adapters/{{name:str}}"],
    opt={SCOPE: Scope.ADAPTERS_WRITE},
    status_code=200,
)
async def delete_adapter(request: HttpRequest, name: str) -> Deleted:
    """Retires all its versions. Its name may be used again; its version numbers are not given out again."""
    await services_of(request.scope).lifecycle.retire(principal_of(request.scope), name, None)
    return Deleted(id=name, object="adapter.deleted")


@get(
    ["/v1/adapters/{name:str}/versions", f"{OF_TENANT}/adapters/{{name:str}}/versions"],
    opt={SCOPE: Scope.ADAPTERS_READ},
)
async def list_versions(request: HttpRequest, name: str) -> VersionList:
    """Newest first; `after` and `limit` page through them."""
    services, query = services_of(request.scope), page_query(request.query_params)
    found = await services.lifecycle.list_versions(
        principal_of(request.scope), name, version_cursor(query), query.limit + 1
    )
    page = cut(list(found.versions), query)
    base, aliases = services.catalog.base.name, found.adapter.aliases
    return VersionList(
        data=[version_out(name, version, aliases, base) for version in page.items],
        has_more=page.has_more,
        next=str(page.items[-1].number) if page.has_more else None,
    )


@get(
    [
        "/v1/adapters/{name:str}/versions/{number:int}",
        f"{OF_TENANT}/adapters/{{name:str}}/versions/{{number:int}}",
    ],
    opt={SCOPE: Scope.ADAPTERS_READ},
)
async def get_version(request: HttpRequest, name: str, number: int) -> VersionOut:
    services = services_of(request.scope)
    found = await services.lifecycle.get_version(principal_of(request.scope), name, number)
    return version_out(name, found.versions[0], found.adapter.aliases, services.catalog.base.name)


@delete(
    [
        "/v1/adapters/{name:str}/versions/{number:int}",
        f"{OF_TENANT}/adapters/{{name:str}}/versions/{{number:int}}",
    ],
    opt={SCOPE: Scope.ADAPTERS_WRITE},
    status_code=200,
)
async def delete_version(request: HttpRequest, name: str, number: int) -> Deleted:
    """Retires one version. Aliases that point to it go with it; none is moved to another version."""
    await services_of(request.scope).lifecycle.retire(principal_of(request.scope), name, number)
    return Deleted(id=f"{name}@{number}", object="adapter.version.deleted")


@post(
    ["/v1/adapters/{name:str}/versions", f"{OF_TENANT}/adapters/{{name:str}}/versions"],
    opt={SCOPE: Scope.ADAPTERS_WRITE},
    request_max_body_size=None,  # the parts have their own caps, and are never held in memory
)
async def upload_version(request: HttpRequest, name: str) -> Response[VersionOut]:
    """Proves, stores and publishes an adapter: multipart/form-data with `adapter_config.json` and
    `adapter_model.safetensors`. 201 with the new version, which `live` now points to; 200 with the version
    that has the same content already, in which case nothing changed."""
    services, principal = services_of(request.scope), principal_of(request.scope)
    check_new_name(principal, name, reserved=services.catalog.is_reserved(name))
    boundary = boundary_of(request.headers.get("content-type", ""))
    check_length(_announced(request), services.intake.limits)
    stored = await services.intake.take(
        Upload(principal.tenant, name, boundary, body_chunks(request.receive))
    )
    body = version_out(name, stored.version, stored.aliases, services.catalog.base.name)
    place = f"{request.url.path}/{stored.version.number}"
    return Response(body, status_code=201 if stored.created else 200, headers={"location": place})


def check_new_name(principal: Principal, name: str, *, reserved: bool) -> None:
    """Raises `BadRequest` or `Forbidden` when no adapter may have this name, or the key may not use it."""
    if not is_name(name):
        raise BadRequest(
            f"Invalid adapter name: it must match {NAME_PATTERN}.", param="name", code="invalid_adapter_name"
        )
    if reserved:
        raise BadRequest(f"'{name}' is the name of a base model.", param="name", code="reserved_adapter_name")
    if not may(principal, Action.CHANGE, name):
        raise Forbidden("This API key may not change an adapter of this name.", param="name")


class ClientLeft(BadRequest):
    """The connection closed before the body was complete; nobody hears this."""

    code = "client_disconnected"


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it arrives; raises `ClientLeft`."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientLeft("The connection was closed before the upload was complete.")
        if message["body"]:
            yield message["body"]
        more = message["more_body"]


def _announced(request: HttpRequest) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None


ROUTES = [
    list_models,
    get_model,
    list_adapters,
    get_adapter,
    delete_adapter,
    list_versions,
    get_version,
    delete_version,
    upload_version,
]
