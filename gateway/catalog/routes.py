"""`/v1/models` and `/v1/adapters`; for accounts also under `/api/v1/tenants/{tenant}`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, QueryParameter

from gateway.access import SCOPE, role_of
from gateway.audit.service import Actor
from gateway.catalog.allowed import Viewer
from gateway.catalog.answering import alias_of, answer_upload, preferred_wait_s
from gateway.catalog.intake import Body, Stored, Upload
from gateway.catalog.names import LIVE, MAX_VERSION, NAME_PATTERN, is_name
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
from gateway.problems import JSON
from gateway.public_url import below
from gateway.services import Services
from gateway.uploads.bodies import announced_length, body_chunks, small_body
from gateway.uploads.taking import MAX_JSON_BYTES, version_from

MODELS = ["/v1/models", "/api/v1/tenants/{tenant:uuid}/models"]
ADAPTERS = ["/v1/adapters", "/api/v1/tenants/{tenant:uuid}/adapters"]
ADAPTER = [f"{path}/{{name:str}}" for path in ADAPTERS]
VERSIONS = [f"{path}/versions" for path in ADAPTER]
VERSION = [f"{path}/{{number:int}}" for path in VERSIONS]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}

AnyRequest = Request[Any, Any, Any]
ListedState = Literal["uploaded", "proving", "ready", "rejected", "retired"]
InState = Annotated[ListedState | None, QueryParameter(name="state")]  # Litestar keeps `state` to itself
ReadyAlias = Annotated[
    str,
    QueryParameter(max_length=63, description="Points to the version once it is ready; or `none`."),
]
Retired = Annotated[
    Literal["retired"] | None,
    QueryParameter(name="state", description="`retired`: those with versions that can be restored."),
]
AnyState = Annotated[
    Literal["any"] | None,
    QueryParameter(name="state", description="`any`: also one that is retired, and can be restored."),
]
NameCursor = Annotated[
    str | None, QueryParameter(pattern=f"^{NAME_PATTERN}$", max_length=63, description=EARLIER)
]
ModelLimit = Annotated[int, QueryParameter(ge=1, le=MODELS_LISTED, description="Models in one answer.")]
NumberCursor = Annotated[int | None, QueryParameter(ge=1, le=MAX_VERSION, description=EARLIER)]


@get(MODELS, summary="The base model, the tenant's own adapters, and those shared with it")
async def list_models(
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    after: NameCursor = None,
    limit: ModelLimit = MODELS_LISTED,
) -> ModelList:
    """SDKs read it whole, and ask once: so a page is as long as one answer may be. To a key, those that it
    may use; an account uses none, and sees what its tenant's keys could."""
    action = Action.USE if role_of(request.scope) is None else Action.SEE
    found = await services.catalog.list_models(principal, after or "", limit + 1, action)
    return ModelList.of(found, limit)


@get("/v1/models/{model:path}", summary="One of them: name, name@3, owner/name")
async def get_model(
    services: NamedDependency[Services], principal: NamedDependency[Principal], model: FromPath[str]
) -> ModelOut:
    return ModelOut.of(await services.catalog.get_model(principal, model.removeprefix("/")))


@get(ADAPTERS, opt=READ, summary="Adapters, by name")
async def list_adapters(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name_prefix: NamePrefix = None,
    in_state: Retired = None,
    cursor: PageCursor = None,
    after: NameCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> AdapterList:
    given = {"tenant": principal.tenant, "name_prefix": name_prefix, "state": in_state}
    (start,) = BY_NAME.start(cursor, given) or (after or "",)
    retired = in_state == "retired"
    rows = await services.lifecycle.list_adapters(principal, start, limit + 1, name_prefix, retired=retired)
    cut = BY_NAME.cut(rows, limit, lambda row: (row.adapter.name,), given)
    base, tier_of = services.catalog.base.name, services.placements.best_tier
    return AdapterList.of(cut, base, viewer_of(request, principal), tier_of)


@get(ADAPTER, opt=READ, summary="One adapter")
async def get_adapter(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    in_state: AnyState = None,
) -> AdapterOut:
    row = await services.lifecycle.get_adapter(principal, name, retired_too=in_state == "any")
    base, tier_of = services.catalog.base.name, services.placements.best_tier
    return AdapterOut.of(row, base, viewer_of(request, principal), tier_of)


@delete(ADAPTER, opt=WRITE, status_code=200, summary="Retire an adapter with all its versions")
async def delete_adapter(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
) -> Deleted:
    """It can be restored until its versions' `purges_at`. The name may be used again; its version numbers
    are not given out again."""
    await services.lifecycle.retire(principal, actor, name, None)
    return Deleted(id=name, object="adapter.deleted")


@get(VERSIONS, opt=READ, summary="Versions of an adapter, newest first")
async def list_versions(
    request: AnyRequest,
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
    viewer = viewer_of(request, principal)
    return VersionList.of(found.adapter, cut, services.catalog.base.name, viewer)


@get(VERSION, opt=READ, summary="One version of an adapter")
async def get_version(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    number: FromPath[int],
    in_state: AnyState = None,
) -> VersionOut:
    found = await services.lifecycle.get_version(principal, name, number, retired_too=in_state == "any")
    viewer = viewer_of(request, principal)
    return VersionOut.of(found.adapter, found.versions[0], services.catalog.base.name, viewer)


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
    responses={
        200: ResponseSpec(VersionOut, description="This content was there already."),
        202: ResponseSpec(VersionOut, description="Stored; its proof on a replica is not over yet."),
        **REFUSALS,
    },
)
async def upload_version(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    alias: ReadyAlias = LIVE,
) -> Response[VersionOut]:
    """Checks and stores it, and has a replica prove it: files in the body, uploads that are finished, or a
    folder that it is imported from. 201: the new version is ready, and `alias` points to it. 202: its proof
    is not over yet. 200: the version that has the same content already, in whatever state; nothing changed.
    With `Prefer: respond-async`, or `wait=SECONDS`, it waits less for the proof."""
    _check_name(principal, name, reserved=services.catalog.is_reserved(name))
    stored = await _take(request, services, Upload(principal.tenant, actor, name, alias_of(alias)))
    place = below(request.scope["raw_path"], str(stored.version.number))
    wait_s = preferred_wait_s(request.headers.get("prefer", ""), services.proofs.wait_s)
    return await answer_upload(services, viewer_of(request, principal), stored, place, wait_s)


def viewer_of(request: AnyRequest, principal: Principal) -> Viewer:
    return Viewer(principal, role_of(request.scope))


async def _take(request: AnyRequest, services: Services, upload: Upload) -> Stored:
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() == JSON:
        body = await small_body(request, MAX_JSON_BYTES, services.settings.body_timeout_s)
        return await services.taking.take(upload, version_from(body))
    boundary, length = boundary_of(kind), announced_length(request)
    check_length(length, services.intake.limits)
    return await services.intake.take(upload, Body(boundary, body_chunks(request.receive), length))


def _check_name(principal: Principal, name: str, *, reserved: bool) -> None:
    """Raises `BadRequest` or `Forbidden` when no adapter may have this name, or the key may not use it."""
    if not is_name(name):
        message = f"Invalid adapter name: it must match {NAME_PATTERN}."
        raise BadRequest(message, param="name", code="invalid_adapter_name")
    if reserved:
        raise BadRequest(f"'{name}' is the name of a base model.", param="name", code="reserved_adapter_name")
    if not may(principal, Action.CHANGE, name):
        raise Forbidden("This API key may not change an adapter of this name.", param="name")


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
