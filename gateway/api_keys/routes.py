"""HTTP of API keys: for accounts, of one tenant, and for the tenant's own keys that have the scope."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter

from gateway.access import SCOPE, role_of
from gateway.api_keys.grants import BY_ROLE, Grant, held_by
from gateway.api_keys.schemas import KeyCreate, KeyCreated, KeyList, KeyOut, KeyPatch, KeyRotate
from gateway.audit.service import Actor
from gateway.principal import Principal, Scope
from gateway.services import Services

KEYS = ["/v1/keys", "/api/v1/tenants/{tenant:uuid}/keys"]
KEY = [f"{path}/{{key_id:str}}" for path in KEYS]
OPT: dict[str, object] = {SCOPE: Scope.KEYS_WRITE}

KeyId = Annotated[str, PathParameter(max_length=64, description="Public part of the key.")]
AnyRequest = Request[Any, Any, Any]


def within(request: AnyRequest, principal: Principal) -> Grant:
    """What whoever asks may give to a key."""
    role = role_of(request.scope)
    return held_by(principal) if role is None else BY_ROLE[role]


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
    return KeyCreated(KeyOut.of(key), secret.text)


@get(KEYS, opt=OPT, summary="A tenant's API keys, newest first")
async def list_keys(
    request: AnyRequest, services: NamedDependency[Services], principal: NamedDependency[Principal]
) -> KeyList:
    """Asked with an API key, those that can do no more than it."""
    found = await services.keys.list_of(principal.tenant, within=within(request, principal))
    return KeyList([KeyOut.of(key) for key in found])


@get(KEY, opt=OPT, summary="One API key")
async def get_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    key_id: KeyId,
) -> KeyOut:
    return KeyOut.of(await services.keys.get(principal.tenant, key_id, within=within(request, principal)))


@patch(KEY, opt=OPT, summary="Change what an API key may do")
async def change_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
    data: JSONBody[KeyPatch],
) -> KeyOut:
    """Holds for the next request; null lifts a bound."""
    bounds = within(request, principal)
    return KeyOut.of(await services.keys.change(actor, principal.tenant, key_id, data, within=bounds))


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
    return KeyCreated(KeyOut.of(key), secret.text)


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
    return KeyOut.of(await services.keys.end_previous(actor, principal.tenant, key_id, within=bounds))


@delete(KEY, opt=OPT, status_code=200, summary="Revoke an API key for good")
async def revoke_key(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    key_id: KeyId,
) -> KeyOut:
    return KeyOut.of(
        await services.keys.revoke(actor, principal.tenant, key_id, within=within(request, principal))
    )


handlers = [create_key, list_keys, get_key, change_key, rotate_key, end_previous_secret, revoke_key]
