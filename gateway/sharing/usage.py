"""What an owner may know of those who use its adapters: who, how much, on which day; nothing of what they
asked, and nothing finer."""

from __future__ import annotations

from gateway.catalog.names import is_name
from gateway.db import Database
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal, Scope
from gateway.sharing import repository
from gateway.sharing.schemas import SharedUseReport
from gateway.usage.service import Asked, window_asked

MAX_ROWS = 10_000


async def shared_use(
    database: Database,
    principal: Principal,
    asked: Asked,
    adapter: str | None,
) -> SharedUseReport:
    """By day, tenant and adapter, of the principal's own adapters (or of one). Raises `Forbidden` for a key
    that may not read usage, `BadRequest` for a window that makes no sense or has too many rows."""
    if not principal.may(Scope.USAGE_READ):
        raise Forbidden("This API key lacks the scope 'usage:read'.")
    if adapter is not None and not is_name(adapter):
        raise BadRequest("'adapter' is no adapter's name.", param="adapter", code="invalid_value")
    window = await window_asked(database, principal.tenant, asked)
    async with database.tenant_snapshot(principal.tenant) as session:
        until = await repository.used_complete_until(session)
        found = await repository.used_by_others(session, window, adapter, MAX_ROWS + 1)
    if len(found) > MAX_ROWS:
        message = f"That is more than {MAX_ROWS} rows: name fewer days, or an adapter."
        raise BadRequest(message, param="first", code="report_too_large")
    return SharedUseReport.of(window, found, until)
