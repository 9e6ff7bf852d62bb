"""`/v1/models` and `/v1/adapters`, the latter also under `/api/v1/tenants/{tenant}` for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from litestar import Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, QueryParameter
from litestar.types import Receive

from gateway.access import SCOPE
from gateway.audit.service import Actor
from gateway.catalog.intake import Upload
from gateway.catalog.names import MAX_VERSION, NAME_PATTERN, is_name
from gateway.catalog.openapi import REFUSALS, UploadOperation
from gateway.catalog.parts import boundary_of, check_length
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import BY_NAME, BY_NUMBER
from gateway.catalog.schemas import (
    AdapterList,
    AdapterOut,
    Deleted,
    ModelList,
    ModelOut,
    VersionList,
    VersionOut,
)
from gateway.catalog.service import MODELS_LISTED
from gateway.errors import BadRequest, Forbidden
from gateway.paging import DEFAULT_LIMIT, EARLIER, NamePrefix, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.services import Services

ADAPTERS = ["/v1/adapters", "/api/v1/tenants/{tenant:uuid}/adapters"]
ADAPTER = [f"{path}/{{name:str}}" for path in ADAPTERS]
VERSIONS = [f"{path}/versions" for path in ADAPTER]
VERSION = [f"{path}/{{number:int}}" for path in VERSIONS]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}

ListedState = Literal["pending", "ready", "refused"]
InState = Annotated[ListedState | None, QueryParameter(name="state")]  # Litestar keeps `state` to itself
NameCursor = Annotated[
    str | None, QueryParameter(pattern=f"^{NAME_PATTERN}$", max_length=63, description=EARLIER)
]
ModelLimit = Annotated[int, QueryParameter(ge=1, le=MODELS_LISTED, description="Models in one answer.")]
NumberCursor = Annotated[int | None, QueryParameter(ge=1, le=MAX_VERSION, description=EARLIER)]


@get("/v1/models", summary="The base model and the tenant's own adapters")
async def list_models(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    after: NameCursor = None,
    limit: ModelLimit = MODELS_LISTED,
) -> ModelList:
    """SDKs read it whole, and ask once: so a page is as long as one answer may be."""
    return ModelList.of(await services.catalog.list_models(principal, after or "", limit + 1), limit)


@get("/v1/models/{model:path}", summary="One of them: name, name@3, owner/name")
async def get_model(
    services: NamedDependency[Services], principal: NamedDependency[Principal], model: FromPath[str]
) -> ModelOut:
    return ModelOut.of(await services.catalog.get_model(principal, model.removeprefix("/")))


@get(ADAPTERS, opt=READ, summary="Adapters, by name")
async def list_adapters(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name_prefix: NamePrefix = None,
    cursor: PageCursor = None,
    after: NameCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> AdapterList:
    given = {"tenant": principal.tenant, "name_prefix": name_prefix}
    (start,) = BY_NAME.start(cursor, given) or (after or "",)
    rows = await services.lifecycle.list_adapters(principal, start, limit + 1, name_prefix)
    cut = BY_NAME.cut(rows, limit, lambda row: (row.adapter.name,), given)
    return AdapterList.of(cut, services.catalog.base.name)


@get(ADAPTER, opt=READ, summary="One adapter")
async def get_adapter(
    services: NamedDependency[Services], principal: NamedDependency[Principal], name: FromPath[str]
) -> AdapterOut:
    row = await services.lifecycle.get_adapter(principal, name)
    return AdapterOut.of(row, services.catalog.base.name)


@delete(ADAPTER, opt=WRITE, status_code=200, summary="Retire an adapter with all its versions")
async def delete_adapter(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
) -> Deleted:
    """The name may be used again; its version numbers are not given out again."""
    await services.lifecycle.retire(principal, actor, name, None)
    return Deleted(id=name, object="adapter.deleted")


@get(VERSIONS, opt=READ, summary="Versions of an adapter, newest first")
async def list_versions(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    in_state: InState = None,
    cursor: PageCursor = None,
    after: NumberCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> VersionList:
    given = {"tenant": principal.tenant, "adapter": name, "state": in_state}
    start = BY_NUMBER.start(cursor, given) or (after,)
    found = await services.lifecycle.list_versions(principal, name, start[0], limit + 1, in_state)
    cut = BY_NUMBER.cut(found.versions, limit, lambda version: (version.number,), given)
    return VersionList.of(found.adapter, cut, services.catalog.base.name)


@get(VERSION, opt=READ, summary="One version of an adapter")
async def get_version(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    number: FromPath[int],
) -> VersionOut:
    found = await services.lifecycle.get_version(principal, name, number)
    return VersionOut.of(found.adapter, found.versions[0], services.catalog.base.name)


@delete(VERSION, opt=WRITE, status_code=200, summary="Retire one version of an adapter")
async def delete_version(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    number: FromPath[int],
) -> Deleted:
    """Aliases that point to it go with it; none is moved to another version."""
    await services.lifecycle.retire(principal, actor, name, number)
    return Deleted(id=f"{name}@{number}", object="adapter.version.deleted")


@post(
    VERSIONS,
    opt=WRITE,
    request_max_body_size=None,  # the parts have their own caps, and are never held in memory
    summary="Upload a version of an adapter",
    operation_class=UploadOperation,
    responses={200: ResponseSpec(VersionOut, description="This content was there already."), **REFUSALS},
)
async def upload_version(
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
) -> Response[VersionOut]:
    """Proves, stores and publishes it. 201: the new version, which `live` now points to. 200: the version
    that has the same content already; nothing changed."""
    _check_name(principal, name, reserved=services.catalog.is_reserved(name))
    boundary = boundary_of(request.headers.get("content-type", ""))
    check_length(_announced(request), services.intake.limits)
    upload = Upload(principal.tenant, actor, name, boundary, body_chunks(request.receive))
    stored = await services.intake.take(upload)
    body = VersionOut.of(stored.adapter, stored.version, services.catalog.base.name)
    place = f"{request.url.path}/{stored.version.number}"
    return Response(body, status_code=201 if stored.created else 200, headers={"location": place})


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


def _check_name(principal: Principal, name: str, *, reserved: bool) -> None:
    """Raises `BadRequest` or `Forbidden` when no adapter may have this name, or the key may not use it."""
    if not is_name(name):
        message = f"Invalid adapter name: it must match {NAME_PATTERN}."
        raise BadRequest(message, param="name", code="invalid_adapter_name")
    if reserved:
        raise BadRequest(f"'{name}' is the name of a base model.", param="name", code="reserved_adapter_name")
    if not may(principal, Action.CHANGE, name):
        raise Forbidden("This API key may not change an adapter of this name.", param="name")


def _announced(request: Request[Any, Any, Any]) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None


handlers = [
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
