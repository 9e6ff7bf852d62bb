"""HTTP of API keys: operators only, for one tenant. The door has checked that the tenant exists."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from litestar import delete, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from gateway.api_keys.repository import NEWEST_FIRST, KeyFilters, KeyState
from gateway.api_keys.schemas import KeyCreate, KeyCreated, KeyList, KeyOut
from gateway.audit.service import Actor
from gateway.paging import DEFAULT_LIMIT, NamePrefix, PageCursor, PageLimit, Since, Until, moment
from gateway.principal import TenantId
from gateway.services import Services

InState = Annotated[KeyState | None, QueryParameter(name="state")]  # Litestar keeps `state` to itself
KeyId = Annotated[str, PathParameter(max_length=64, description="Public part of the key.")]


def key_filters(
    in_state: InState = None,
    name_prefix: NamePrefix = None,
    since: Since = None,
    until: Until = None,
) -> KeyFilters:
    return KeyFilters(in_state, name_prefix, moment(since), moment(until))


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


@get(
    "/api/v1/tenants/{tenant:uuid}/keys",
    summary="A tenant's API keys, newest first",
    dependencies={"filters": Provide(key_filters, sync_to_thread=False)},
)
async def list_keys(
    services: NamedDependency[Services],
    filters: NamedDependency[KeyFilters],
    tenant: FromPath[UUID],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> KeyList:
    given = {"tenant": tenant, **asdict(filters)}
    start = NEWEST_FIRST.start(cursor, given)
    found = await services.keys.page(TenantId(tenant), filters, start, limit + 1)
    return NEWEST_FIRST.cut(found, limit, lambda key: (key.created_at, key.id), given).fill(
        KeyList, KeyOut.of
    )


@delete(
    "/api/v1/tenants/{tenant:uuid}/keys/{key_id:str}", status_code=200, summary="Revoke an API key for good"
)
async def revoke_key(
    services: NamedDependency[Services], actor: NamedDependency[Actor], tenant: FromPath[UUID], key_id: KeyId
) -> KeyOut:
    return KeyOut.of(await services.keys.revoke(actor, TenantId(tenant), key_id))


handlers = [create_key, list_keys, revoke_key]
