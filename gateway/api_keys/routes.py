"""HTTP of API keys: operators only, for one tenant. The door has checked that the tenant exists."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter

from gateway.api_keys.schemas import KeyCreate, KeyCreated, KeyList, KeyOut
from gateway.audit.service import Actor
from gateway.principal import TenantId
from gateway.services import Services

KeyId = Annotated[str, PathParameter(max_length=64, description="Public part of the key.")]


@post(
    "/api/v1/tenants/{tenant:uuid}/keys", summary="Create an API key; its secret is shown in this answer only"
)
async def create_key(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[KeyCreate],
) -> KeyCreated:
    key, secret = await services.keys.create(actor, TenantId(tenant), data)
    return KeyCreated(KeyOut.of(key), secret.text)


@get("/api/v1/tenants/{tenant:uuid}/keys", summary="A tenant's API keys, newest first")
async def list_keys(services: NamedDependency[Services], tenant: FromPath[UUID]) -> KeyList:
    return KeyList([KeyOut.of(key) for key in await services.keys.list_of(TenantId(tenant))])


@delete(
    "/api/v1/tenants/{tenant:uuid}/keys/{key_id:str}", status_code=200, summary="Revoke an API key for good"
)
async def revoke_key(
    services: NamedDependency[Services], actor: NamedDependency[Actor], tenant: FromPath[UUID], key_id: KeyId
) -> KeyOut:
    return KeyOut.of(await services.keys.revoke(actor, TenantId(tenant), key_id))


handlers = [create_key, list_keys, revoke_key]
