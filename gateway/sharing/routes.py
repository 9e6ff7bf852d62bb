"""HTTP of shares: an owner's side, and that of those who may use them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from gateway.access import SCOPE
from gateway.audit.service import Actor
from gateway.errors import NotFound
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope, TenantId
from gateway.services import Services
from gateway.sharing.repository import BY_OWNER, BY_SHARE
from gateway.sharing.schemas import (
    EVERYONE,
    SharedAdapterOut,
    SharedAdapterPage,
    SharedUseReport,
    ShareEnded,
    ShareIn,
    ShareOut,
    SharePage,
)
from gateway.sharing.usage import shared_use
from gateway.usage.routes import WINDOW
from gateway.usage.service import Asked

_TENANT = "/api/v1/tenants/{tenant:uuid}"
SHARES = [f"{root}/adapters/{{name:str}}/shares" for root in ("/v1", _TENANT)]
SHARE = [f"{path}/{{recipient:str}}" for path in SHARES]
OF_OPERATORS = SHARE[1]
RECEIVED = ["/v1/shared-adapters", f"{_TENANT}/shared-adapters"]
USED = ["/v1/usage/shared-adapters", f"{_TENANT}/usage/shared-adapters"]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}

Recipient = Annotated[str, PathParameter(description="A tenant's id, or `all`: every other tenant.")]
OfAdapter = Annotated[str | None, QueryParameter(max_length=63, description="Of this adapter only.")]


@get(SHARES, opt=READ, summary="With whom an adapter is shared, oldest first")
async def list_shares(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> SharePage:
    given = {"tenant": principal.tenant, "adapter": name}
    start = BY_SHARE.start(cursor, given)
    found = await services.sharing.shares(principal, name, start, limit + 1)
    cut = BY_SHARE.cut(found, limit, lambda share: (share.id,), given)
    shown = await services.sharing.shown(cut.rows)
    return SharePage(data=shown, has_more=cut.has_more, next_cursor=cut.next_cursor)


@get(SHARE, opt=READ, summary="One share of an adapter")
async def get_share(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    recipient: Recipient,
) -> ShareOut:
    return await services.sharing.get(principal, name, _recipient(recipient))


@put(OF_OPERATORS, summary="Let a tenant, or all, use an adapter")
async def put_share(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    recipient: Recipient,
    data: JSONBody[ShareIn],
) -> ShareOut:
    """They write `owner/name` as the model, and pay for what they use. They see nothing of what it is made
    of; the owner sees who used it and how much."""
    return await services.sharing.share(actor, principal.tenant, name, _recipient(recipient), data.reachable)


@delete(OF_OPERATORS, status_code=200, summary="End a share")
async def end_share(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    recipient: Recipient,
) -> ShareEnded:
    """No worker begins a request on it 2 s from now; what runs may finish."""
    return await services.sharing.end(actor, principal.tenant, name, _recipient(recipient))


@get(RECEIVED, opt=READ, summary="Other tenants' adapters that this one may use")
async def list_received(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> SharedAdapterPage:
    given = {"tenant": principal.tenant}
    start = BY_OWNER.start(cursor, given)
    found = await services.sharing.received(principal, start, limit + 1)
    cut = BY_OWNER.cut(found, limit, lambda shared: (shared.owner, shared.name), given)
    base = services.catalog.base.name
    return cut.fill(SharedAdapterPage, lambda shared: SharedAdapterOut.of(shared, base))


@get(USED, summary="What other tenants used of your adapters, by day", dependencies=WINDOW)
async def shared_usage(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    asked: NamedDependency[Asked],
    adapter: OfAdapter = None,
) -> SharedUseReport:
    return await shared_use(services.db, principal, asked, adapter)


def _recipient(text: str) -> TenantId | None:
    """None = every other tenant. Raises `NotFound`."""
    if text == EVERYONE:
        return None
    try:
        return TenantId(UUID(text))
    except ValueError:
        raise NotFound("There is no such tenant.") from None


handlers = [list_shares, get_share, put_share, end_share, list_received, shared_usage]
