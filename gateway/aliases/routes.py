"""HTTP of aliases: a tenant's own, and for operators any tenant's."""

from __future__ import annotations

import re
from typing import Annotated, Final

from litestar import Response, delete, get, put
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, HeaderParameter, JSONBody

from gateway.access import SCOPE
from gateway.aliases.repository import BY_NAME
from gateway.aliases.schemas import AliasDeleted, AliasIn, AliasList, AliasOut
from gateway.aliases.service import ANY, Expected
from gateway.audit.service import Actor
from gateway.errors import BadRequest
from gateway.models import Alias
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.services import Services

ALIASES = ["/v1/adapters/{name:str}/aliases", "/api/v1/tenants/{tenant:uuid}/adapters/{name:str}/aliases"]
ALIAS = [f"{path}/{{alias:str}}" for path in ALIASES]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}

IfMatch = Annotated[
    str | None, HeaderParameter(name="if-match", max_length=64, description="ETag that it must have.")
]
IfNoneMatch = Annotated[
    str | None, HeaderParameter(name="if-none-match", max_length=64, description="`*`: there must be none.")
]
_ETAG: Final = re.compile(r'"([1-9][0-9]{0,17})"')


@get(ALIASES, opt=READ, summary="Aliases of an adapter, by name")
async def list_aliases(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> AliasList:
    given = {"tenant": principal.tenant, "adapter": name}
    (after,) = BY_NAME.start(cursor, given) or ("",)
    found = await services.aliases.list_of(principal, name, after, limit + 1)
    cut = BY_NAME.cut(found, limit, lambda alias: (alias.name,), given)
    return cut.fill(AliasList, lambda alias: AliasOut.of(name, alias))


@get(ALIAS, opt=READ, summary="One alias")
async def get_alias(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    alias: FromPath[str],
) -> Response[AliasOut]:
    return _answer(name, await services.aliases.get(principal, name, alias), 200)


@put(
    ALIAS,
    opt=WRITE,
    status_code=200,
    summary="Point an alias to a version, or to several by weight",
    responses={201: ResponseSpec(AliasOut, description="It is new.")},
)
async def put_alias(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    alias: FromPath[str],
    data: JSONBody[AliasIn],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response[AliasOut]:
    """Every request that comes after this answered meets the new versions only; those in flight end on their
    own. `If-Match`: the ETag that was read, so that nobody undoes what somebody else did."""
    expected = _expected(if_match, if_none_match)
    moved, is_new = await services.aliases.put(principal, actor, name, alias, _weights(data), expected)
    return _answer(name, moved, 201 if is_new else 200)


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
    await services.aliases.delete(principal, actor, name, alias, _expected(if_match, None))
    return AliasDeleted(id=f"{name}@{alias}")


def _weights(data: AliasIn) -> dict[int, int]:
    """Raises `BadRequest` unless exactly one of both is given."""
    if (data.version is None) == (data.weights is None):
        raise BadRequest("Give either 'version' or 'weights'.", param="version", code="invalid_value")
    if data.version is not None:
        return {data.version: 100}
    return {int(version): percent for version, percent in (data.weights or {}).items()}


def _expected(if_match: str | None, if_none_match: str | None) -> Expected:
    """Raises `BadRequest` for what no alias ever has."""
    if if_none_match is not None:
        if if_none_match != "*" or if_match is not None:
            raise BadRequest("'If-None-Match' may be '*' alone.", param="if-none-match", code="invalid_value")
        return Expected(absent=True)
    if if_match is None:
        return ANY
    match = _ETAG.fullmatch(if_match)
    if match is None:
        raise BadRequest("'If-Match' must be one ETag as an answer has it.", param="if-match")
    return Expected(revision=int(match[1]))


def _answer(name: str, alias: Alias, status: int) -> Response[AliasOut]:
    body = AliasOut.of(name, alias)
    return Response(body, status_code=status, headers={"etag": f'"{alias.revision}"'})


handlers = [list_aliases, get_alias, put_alias, delete_alias]
