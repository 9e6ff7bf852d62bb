"""tus 1.0 under `/v1/uploads`, and for people and pages the list of what is on its way in."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, Response, delete, get, head, patch, post, route
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath
from litestar.types import ExceptionHandlersMap

from gateway import problems
from gateway.access import PUBLIC, SCOPE
from gateway.audit.service import Actor
from gateway.errors import MethodNotAllowed
from gateway.models import Upload
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.public_url import below
from gateway.services import Services
from gateway.uploads import protocol
from gateway.uploads.bodies import announced_length, body_chunks
from gateway.uploads.repository import UPLOADS
from gateway.uploads.schemas import UploadList, UploadOut
from gateway.uploads.service import Piece

ALL = ["/v1/uploads", "/api/v1/tenants/{tenant:uuid}/uploads"]
ONE = [f"{path}/{{upload_id:uuid}}" for path in ALL]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}
OVERRIDE = "x-http-method-override"

AnyRequest = Request[Any, Any, Any]


def _answer(request: AnyRequest, error: Exception) -> Response[bytes]:
    made = problems.answer(request, error)
    made.headers.setdefault("tus-resumable", protocol.VERSION)
    return made


ERRORS: ExceptionHandlersMap = {Exception: _answer}
SAID: dict[int, ResponseSpec] = {
    412: ResponseSpec(None, description="Tus-Resumable is missing, or another version."),
    415: ResponseSpec(None, description=f"The body is not {protocol.BYTES}."),
    423: ResponseSpec(None, description="Another request writes or takes the upload."),
    460: ResponseSpec(None, description="The bytes have not the checksum that was announced."),
}


@route(
    ALL,
    http_method=["OPTIONS"],
    opt={PUBLIC: True},
    status_code=204,
    include_in_schema=False,
    exception_handlers=ERRORS,
)
async def upload_options(services: NamedDependency[Services]) -> Response[None]:
    return Response(None, status_code=204, headers=protocol.options(services.uploads.limits))


@post(
    ALL,
    opt=WRITE,
    request_max_body_size=None,  # its bytes go to disk as they arrive, up to what is announced
    summary="Begin an upload (tus creation), with its first bytes or without",
    exception_handlers=ERRORS,
    responses={201: ResponseSpec(None, description="Location is the upload."), **SAID},
)
async def create_upload(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
) -> Response[None]:
    protocol.require_version(request.headers)
    uploads = services.uploads
    wanted = protocol.announced(request.headers, uploads.limits)
    brings = "content-type" in request.headers
    if brings:
        protocol.require_bytes(request.headers)
    checksum = protocol.checksum_of(request.headers)
    upload = await uploads.create(principal.tenant, actor, wanted)
    if brings:
        piece = Piece(0, announced_length(request), checksum, body_chunks(request.receive))
        try:
            upload = await uploads.write(principal.tenant, upload.id, piece)
        except BaseException:  # nobody has heard of it
            await uploads.discard(principal.tenant, [upload.id])
            raise
    location = below(request.scope["raw_path"], str(upload.id))
    headers = {**protocol.places(upload.received, upload.expires_at), "location": location}
    return Response(None, status_code=201, headers=headers)


@get(ALL, opt=READ, summary="Uploads that are no version yet, newest first")
async def list_uploads(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> UploadList:
    given = {"tenant": principal.tenant}
    start = UPLOADS.start(cursor, given)
    rows = await services.uploads.list_of(principal.tenant, start, limit + 1)
    return UPLOADS.cut(rows, limit, lambda row: (row.id,), given).fill(UploadList, UploadOut.of)


@get(ONE, opt=READ, summary="One upload")
async def get_upload(
    services: NamedDependency[Services], principal: NamedDependency[Principal], upload_id: FromPath[UUID]
) -> UploadOut:
    return UploadOut.of(await services.uploads.get(principal.tenant, upload_id))


@head(
    ONE,
    opt=READ,
    summary="How far an upload is (tus)",
    exception_handlers=ERRORS,
    responses={200: ResponseSpec(None, description="Upload-Offset tells."), **SAID},
)
async def head_upload(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    upload_id: FromPath[UUID],
) -> Response[None]:
    upload = await services.uploads.get_here(principal.tenant, upload_id)
    protocol.require_version(request.headers)
    return Response(None, headers={**_told(upload), "upload-length": str(upload.num_bytes)})


@patch(
    ONE,
    opt=WRITE,
    status_code=204,
    request_max_body_size=None,
    summary="The next bytes of an upload (tus)",
    exception_handlers=ERRORS,
    responses=SAID,
)
async def write_upload(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    upload_id: FromPath[UUID],
) -> Response[None]:
    return await _write(request, services, principal, upload_id)


@delete(
    ONE,
    opt=WRITE,
    status_code=204,
    summary="Give an upload up (tus termination)",
    exception_handlers=ERRORS,
    responses=SAID,
)
async def delete_upload(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    upload_id: FromPath[UUID],
) -> Response[None]:
    return await _delete(request, services, principal, actor, upload_id)


@post(
    ONE,
    opt=WRITE,
    status_code=204,
    request_max_body_size=None,
    summary="PATCH or DELETE for clients that can send neither: X-HTTP-Method-Override says which",
    exception_handlers=ERRORS,
    responses=SAID,
)
async def override_upload(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    upload_id: FromPath[UUID],
) -> Response[None]:
    match request.headers.get(OVERRIDE, "").upper():
        case "PATCH":
            return await _write(request, services, principal, upload_id)
        case "DELETE":
            return await _delete(request, services, principal, actor, upload_id)
    await services.uploads.get(principal.tenant, upload_id)
    raise MethodNotAllowed(
        "Use PATCH or DELETE, or name it in X-HTTP-Method-Override.",
        headers={"allow": "DELETE, GET, HEAD, PATCH"},
    )


async def _write(
    request: AnyRequest, services: Services, principal: Principal, upload_id: UUID
) -> Response[None]:
    await services.uploads.get(principal.tenant, upload_id)  # before the protocol: a stranger learns nothing
    protocol.require_version(request.headers)
    protocol.require_bytes(request.headers)
    piece = Piece(
        protocol.offset_of(request.headers),
        announced_length(request),
        protocol.checksum_of(request.headers),
        body_chunks(request.receive),
    )
    upload = await services.uploads.write(principal.tenant, upload_id, piece)
    return Response(None, status_code=204, headers=protocol.places(upload.received, upload.expires_at))


async def _delete(
    request: AnyRequest, services: Services, principal: Principal, actor: Actor, upload_id: UUID
) -> Response[None]:
    await services.uploads.get(principal.tenant, upload_id)
    protocol.require_version(request.headers)
    await services.uploads.delete(principal.tenant, actor, upload_id)
    return Response(None, status_code=204, headers={"tus-resumable": protocol.VERSION})


def _told(upload: Upload) -> dict[str, str]:
    told = {"upload-metadata": upload.told} if upload.told else {}
    return {**protocol.places(upload.received, upload.expires_at), **told}


handlers = [
    upload_options,
    create_upload,
    list_uploads,
    get_upload,
    head_upload,
    write_upload,
    delete_upload,
    override_upload,
]
