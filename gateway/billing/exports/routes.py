"""HTTP of exports: a tenant's own, and for operators also those of all tenants."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream

from gateway.access import SCOPE
from gateway.audit.service import Actor
from gateway.billing.exports.schemas import ExportIn, ExportOut, ExportPage, File
from gateway.billing.exports.service import MEDIA_TYPES, NAMES
from gateway.billing.statements.service import wanted_month
from gateway.principal import Principal, Scope, TenantId
from gateway.services import Services

OWN = ["/v1/billing/exports", "/api/v1/tenants/{tenant:uuid}/billing/exports"]
ALL = "/api/v1/billing/exports"
READ: dict[str, object] = {SCOPE: Scope.USAGE_READ}
ANY_BYTES = "application/octet-stream"  # as documented; the answer says which
NOT_READY: dict[int, Any] = {409: ResponseSpec(None, description="It is not done, or was superseded.")}

PageSize = Annotated[int, QueryParameter(ge=1, le=200, description="Exports in one answer.")]
After = Annotated[str | None, QueryParameter(max_length=64, description="`next` of the page before.")]


@post(OWN, opt=READ, status_code=202, summary="Ask for an export of a month")
async def ask_export(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    data: JSONBody[ExportIn],
) -> ExportOut:
    """Made within seconds; asked for again before anything changed, it is the same export."""
    month = wanted_month(data.month)
    return ExportOut.of(await services.billing.exports.ask(actor, principal.tenant, month))


@get(OWN, opt=READ, summary="Exports that were asked for, newest first")
async def list_exports(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    after: After = None,
    limit: PageSize = 50,
) -> ExportPage:
    return await _page(services, principal.tenant, after, limit)


@get([f"{path}/{{export_id:str}}" for path in OWN], opt=READ, summary="One export")
async def get_export(
    services: NamedDependency[Services], principal: NamedDependency[Principal], export_id: FromPath[str]
) -> ExportOut:
    return ExportOut.of(await services.billing.exports.get(principal.tenant, export_id))


@get(
    [f"{path}/{{export_id:str}}/file" for path in OWN],
    opt=READ,
    summary="A file of an export",
    media_type=ANY_BYTES,
    responses=NOT_READY,
)
async def get_export_file(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    export_id: FromPath[str],
    kind: FromQuery[File] = "csv",
) -> Stream:
    return await _stream(services, principal.tenant, export_id, kind)


@post(ALL, status_code=202, summary="Ask for an export of a month of all tenants")
async def ask_export_of_all(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[ExportIn]
) -> ExportOut:
    return ExportOut.of(await services.billing.exports.ask(actor, None, wanted_month(data.month)))


@get(ALL, summary="Exports of all tenants, newest first")
async def list_exports_of_all(
    services: NamedDependency[Services], after: After = None, limit: PageSize = 50
) -> ExportPage:
    return await _page(services, None, after, limit)


@get(f"{ALL}/{{export_id:str}}", summary="One export of all tenants")
async def get_export_of_all(services: NamedDependency[Services], export_id: FromPath[str]) -> ExportOut:
    return ExportOut.of(await services.billing.exports.get(None, export_id))


@get(
    f"{ALL}/{{export_id:str}}/file",
    summary="A file of an export of all tenants",
    media_type=ANY_BYTES,
    responses=NOT_READY,
)
async def get_export_file_of_all(
    services: NamedDependency[Services], export_id: FromPath[str], kind: FromQuery[File] = "csv"
) -> Stream:
    return await _stream(services, None, export_id, kind)


async def _page(services: Services, tenant: TenantId | None, after: str | None, limit: int) -> ExportPage:
    found = await services.billing.exports.page(tenant, after, limit + 1)
    shown, more = found[:limit], len(found) > limit
    return ExportPage([ExportOut.of(each) for each in shown], more, shown[-1].id if more else None)


async def _stream(services: Services, tenant: TenantId | None, export: str, kind: File) -> Stream:
    download = await services.billing.exports.fetch(tenant, export, kind)
    name = f"{export[:12]}-{NAMES[kind]}"
    return Stream(
        download.chunks(),
        headers={
            "content-type": MEDIA_TYPES[kind],  # the handler's own would win over one given to Stream
            "content-length": str(download.num_bytes),
            "content-disposition": f'attachment; filename="{name}"',
        },
    )


handlers = [
    ask_export,
    list_exports,
    get_export,
    get_export_file,
    ask_export_of_all,
    list_exports_of_all,
    get_export_of_all,
    get_export_file_of_all,
]
