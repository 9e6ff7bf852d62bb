"""HTTP of API keys: for accounts, of one tenant, and for the tenant's own keys that have the scope."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from litestar import Request, Response, delete, get, patch, post
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody, PathParameter, QueryParameter

from gateway.access import SCOPE, role_of
from gateway.api_keys.grants import BY_ROLE, Grant, held_by
from gateway.api_keys.repository import NEWEST_FIRST, KeyFilters, KeyState
from gateway.api_keys.schemas import KeyCreate, KeyCreated, KeyList, KeyOut, KeyPatch, KeyRotate
from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.models import ApiKey
from gateway.paging import DEFAULT_LIMIT, NamePrefix, PageCursor, PageLimit, Since, Until, moment
from gateway.principal import Principal, Scope
from gateway.services import Services

KEYS = ["/v1/keys", "/api/v1/tenants/{tenant:uuid}/keys"]
KEY = [f"{path}/{{key_id:str}}" for path in KEYS]
OPT: dict[str, object] = {SCOPE: Scope.KEYS_WRITE}

InState = Annotated[KeyState | None, QueryParameter(name="state")]  # Litestar keeps `state` to itself
IdPrefix = Annotated[
    str | None,
    QueryParameter(min_length=1, max_length=64, description="What its public part begins with."),
]
KeyId = Annotated[str, PathParameter(max_length=64, description="Public part of the key.")]
AnyRequest = Request[Any, Any, Any]


def within(request: AnyRequest, principal: Principal) -> Grant:
    """What whoever asks may give to a key."""
    role = role_of(request.scope)
    return held_by(principal) if role is None else BY_ROLE[role]


def key_filters(
    in_state: InState = None,
    name_prefix: NamePrefix = None,
    id_prefix: IdPrefix = None,
    since: Since = None,
    until: Until = None,
) -> KeyFilters:
    return KeyFilters(in_state, name_prefix, id_prefix, moment(since, "since"), moment(until, "until"))


@post(KEYS, opt=OPT, summary="Create an API key; its secret is shown in this answer only")
async def create_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    data: JSONBody[KeyCreate],
) -> KeyCreated:
    """Made with an API key, it can do no more than that one in any respect."""
    key, secret = await services.keys.create(actor, principal.tenant, data, within=within(request, principal))
    return KeyCreated(KeyOut.of(key, role_of(request.scope)), secret.text)


@get(
    KEYS,
    opt=OPT,
    summary="A tenant's API keys, newest first",
    dependencies={"filters": Provide(key_filters, sync_to_thread=False)},
)
async def list_keys(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    filters: NamedDependency[KeyFilters],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> KeyList:
    """To whom may not see all of a tenant's keys, a page can have fewer than there is room for."""
    bounds = within(request, principal)
    given = {"tenant": principal.tenant, **asdict(filters)}
    start = NEWEST_FIRST.start(cursor, given)
    found = await services.keys.page(principal.tenant, filters, start, limit + 1)
    cut = NEWEST_FIRST.cut(found, limit, lambda key: (key.created_at, key.id), given)
    seen = replace(cut, rows=await services.keys.within_reach(principal.tenant, cut.rows, bounds))
    role = role_of(request.scope)
    return seen.fill(KeyList, lambda key: KeyOut.of(key, role))


@get(KEY, opt=OPT, summary="One API key")
async def get_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    key_id: KeyId,
) -> Response[KeyOut]:
    found = await services.keys.get(principal.tenant, key_id, within=within(request, principal))
    return _tagged(request, found)


@patch(KEY, opt=OPT, summary="Change what an API key may do")
async def change_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
    data: JSONBody[KeyPatch],
    if_match: IfMatch = None,
) -> Response[KeyOut]:
    """Holds for the next request; null lifts a bound."""
    bounds = within(request, principal)
    changed = await services.keys.change(
        actor, principal.tenant, key_id, data, within=bounds, if_match=if_match
    )
    return _tagged(request, changed)


@post(
    [f"{path}/rotate" for path in KEY],
    opt=OPT,
    status_code=200,
    summary="Give an API key a new secret; the old one goes on for a while",
)
async def rotate_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
    data: JSONBody[KeyRotate],
) -> KeyCreated:
    """Id, limits, usage and policy stay. `overlap_s` 0 ends the old secret, and one before it, at once."""
    bounds = within(request, principal)
    key, secret = await services.keys.rotate(actor, principal.tenant, key_id, data.overlap_s, within=bounds)
    return KeyCreated(KeyOut.of(key, role_of(request.scope)), secret.text)


@delete(
    [f"{path}/previous-secret" for path in KEY],
    opt=OPT,
    status_code=200,
    summary="End the secret of before the last rotation now",
)
async def end_previous_secret(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
) -> KeyOut:
    bounds = within(request, principal)
    ended = await services.keys.end_previous(actor, principal.tenant, key_id, within=bounds)
    return KeyOut.of(ended, role_of(request.scope))


@delete(KEY, opt=OPT, status_code=200, summary="Revoke an API key for good")
async def revoke_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
) -> KeyOut:
    bounds = within(request, principal)
    revoked = await services.keys.revoke(actor, principal.tenant, key_id, within=bounds)
    return KeyOut.of(revoked, role_of(request.scope))


def _tagged(request: AnyRequest, key: ApiKey) -> Response[KeyOut]:
    headers = {"etag": tag_of(KeyPatch.fields_of(key))}
    return Response(KeyOut.of(key, role_of(request.scope)), headers=headers)


handlers = [create_key, list_keys, get_key, change_key, rotate_key, end_previous_secret, revoke_key]
