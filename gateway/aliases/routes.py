"""HTTP of aliases: a tenant's own, and for operators any tenant's."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, delete, get, put
from litestar.di import NamedDependency, Provide
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE, role_of
from gateway.aliases.repository import BY_NAME
from gateway.aliases.schemas import AliasDeleted, AliasIn, AliasList, AliasOut
from gateway.aliases.service import Pointing
from gateway.audit.service import Actor
from gateway.catalog.allowed import Viewer
from gateway.edits import Conditions, IfMatch, IfNoneMatch, revision_tag
from gateway.errors import BadRequest
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.services import Services

ALIASES = ["/v1/adapters/{name:str}/aliases", "/api/v1/tenants/{tenant:uuid}/adapters/{name:str}/aliases"]
ALIAS = [f"{path}/{{alias:str}}" for path in ALIASES]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}

AnyRequest = Request[Any, Any, Any]


def alias_conditions(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> Conditions:
    return Conditions.of(if_match, if_none_match)


@get(ALIASES, opt=READ, summary="Aliases of an adapter, by name")
async def list_aliases(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> AliasList:
    given = {"tenant": principal.tenant, "adapter": name}
    (after,) = BY_NAME.start(cursor, given) or ("",)
    found = await services.aliases.list_of(principal, name, after, limit + 1)
    cut = BY_NAME.cut(found, limit, lambda each: (each.alias.name,), given)
    viewer = Viewer(principal, role_of(request.scope))
    return cut.fill(AliasList, lambda each: AliasOut.of(name, each.alias, each.rollout, viewer))


@get(ALIAS, opt=READ, summary="One alias")
async def get_alias(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    alias: FromPath[str],
) -> Response[AliasOut]:
    viewer = Viewer(principal, role_of(request.scope))
    return _answer(viewer, name, await services.aliases.get(principal, name, alias), 200)


@put(
    ALIAS,
    opt=WRITE,
    status_code=200,
    summary="Point an alias to a version, or to several by weight",
    responses={201: ResponseSpec(AliasOut, description="It is new.")},
    dependencies={"conditions": Provide(alias_conditions, sync_to_thread=False)},
)
async def put_alias(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    alias: FromPath[str],
    data: JSONBody[AliasIn],
    conditions: NamedDependency[Conditions],
) -> Response[AliasOut]:
    """Every request that comes after this answered meets the new versions only; those in flight end on their
    own. `If-Match`: the ETag that was read, so that nobody undoes what somebody else did."""
    moved, is_new = await services.aliases.put(principal, actor, name, alias, _weights(data), conditions)
    viewer = Viewer(principal, role_of(request.scope))
    return _answer(viewer, name, Pointing(moved, None), 201 if is_new else 200)


@delete(ALIAS, opt=WRITE, status_code=200, summary="Delete an alias")
async def delete_alias(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    alias: FromPath[str],
    if_match: IfMatch = None,
) -> AliasDeleted:
    """Without `live`, the bare name is unknown."""
    await services.aliases.delete(principal, actor, name, alias, Conditions(if_match))
    return AliasDeleted(id=f"{name}@{alias}")


def _weights(data: AliasIn) -> dict[int, int]:
    """Raises `BadRequest` unless exactly one of both is given."""
    if (data.version is None) == (data.weights is None):
        raise BadRequest("Give either 'version' or 'weights'.", param="version", code="invalid_value")
    if data.version is not None:
        return {data.version: 100}
    return {int(version): percent for version, percent in (data.weights or {}).items()}


def _answer(viewer: Viewer, name: str, found: Pointing, status: int) -> Response[AliasOut]:
    body = AliasOut.of(name, found.alias, found.rollout, viewer)
    return Response(body, status_code=status, headers={"etag": revision_tag(body.revision)})


handlers = [list_aliases, get_alias, put_alias, delete_alias]
