"""HTTP of exports: a tenant's own, and for operators also those of all tenants."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.di import NamedDependency, Provide
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Stream

from gateway.access import SCOPE, role_of
from gateway.audit.service import Actor
from gateway.billing.exports.repository import NEWEST_FIRST, ExportFilters
from gateway.billing.exports.schemas import ExportIn, ExportOut, ExportPage, ExportState, File
from gateway.billing.exports.service import MEDIA_TYPES, NAMES
from gateway.billing.statements.service import wanted_month
from gateway.paging import DEFAULT_LIMIT, EARLIER, PageCursor, PageLimit
from gateway.principal import Principal, Role, Scope, TenantId
from gateway.services import Services

OWN = ["/v1/billing/exports", "/api/v1/tenants/{tenant:uuid}/billing/exports"]
ALL = "/api/v1/billing/exports"
READ: dict[str, object] = {SCOPE: Scope.USAGE_READ}
AnyRequest = Request[Any, Any, Any]
ANY_BYTES = "application/octet-stream"  # as documented; the answer says which
NOT_READY: dict[int, Any] = {409: ResponseSpec(None, description="It is not done, or was superseded.")}

InState = Annotated[ExportState | None, QueryParameter(name="state")]  # Litestar keeps `state` to itself
After = Annotated[str | None, QueryParameter(max_length=64, description=EARLIER)]
OfMonth = Annotated[
    str | None, QueryParameter(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$", description="UTC, as 2026-11.")
]


@dataclass(frozen=True, slots=True)
class _Wanted:
    filters: ExportFilters
    cursor: str | None
    after: str | None
    limit: int


def _wanted(
    in_state: InState = None,
    month: OfMonth = None,
    cursor: PageCursor = None,
    after: After = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> _Wanted:
    filters = ExportFilters(in_state, None if month is None else wanted_month(month))
    return _Wanted(filters, cursor, after, limit)


WANTED = {"wanted": Provide(_wanted, sync_to_thread=False)}


@post(OWN, opt=READ, status_code=202, summary="Ask for an export of a month")
async def ask_export(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    request: AnyRequest,
    data: JSONBody[ExportIn],
) -> ExportOut:
    """Made within seconds; asked for again before anything changed, it is the same export."""
    month = wanted_month(data.month)
    asked = await services.billing.exports.ask(actor, principal.tenant, month)
    return ExportOut.of(asked, role_of(request.scope))


@get(OWN, opt=READ, summary="Exports that were asked for, newest first", dependencies=WANTED)
async def list_exports(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    request: AnyRequest,
    wanted: NamedDependency[_Wanted],
) -> ExportPage:
    return await _page(services, principal.tenant, wanted, role_of(request.scope))


@get([f"{path}/{{export_id:str}}" for path in OWN], opt=READ, summary="One export")
async def get_export(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    request: AnyRequest,
    export_id: FromPath[str],
) -> ExportOut:
    found = await services.billing.exports.get(principal.tenant, export_id)
    return ExportOut.of(found, role_of(request.scope))


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
    asked = await services.billing.exports.ask(actor, None, wanted_month(data.month))
    return ExportOut.of(asked, Role.OPERATOR)


@get(ALL, summary="Exports of all tenants, newest first", dependencies=WANTED)
async def list_exports_of_all(
    services: NamedDependency[Services], wanted: NamedDependency[_Wanted]
) -> ExportPage:
    return await _page(services, None, wanted, Role.OPERATOR)


@get(f"{ALL}/{{export_id:str}}", summary="One export of all tenants")
async def get_export_of_all(services: NamedDependency[Services], export_id: FromPath[str]) -> ExportOut:
    return ExportOut.of(await services.billing.exports.get(None, export_id), Role.OPERATOR)


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


async def _page(
    services: Services, tenant: TenantId | None, wanted: _Wanted, role: Role | None
) -> ExportPage:
    given = {"tenant": tenant, **asdict(wanted.filters)}
    start = NEWEST_FIRST.start(wanted.cursor, given) or wanted.after
    found = await services.billing.exports.page(tenant, wanted.filters, start, wanted.limit + 1)
    cut = NEWEST_FIRST.cut(found, wanted.limit, lambda export: (export.created_at, export.id), given)
    last = cut.rows[-1].id if cut.has_more else None
    return cut.fill(ExportPage, lambda export: ExportOut.of(export, role), next=last)


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
