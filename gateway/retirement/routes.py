"""`…/restore` and `…/purge` of an adapter and of one of its versions."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, cast

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.catalog.allowed import Viewer
from gateway.catalog.routes import ADAPTER, READ, VERSION, WRITE, AnyRequest, viewer_of
from gateway.catalog.schemas import VersionOut
from gateway.principal import Principal
from gateway.retirement.schemas import (
    PurgeIn,
    PurgeOut,
    ReplicaPurgeOut,
    RestoredOut,
    RestoreIn,
    VersionPurgeOut,
)
from gateway.retirement.service import Restored, VersionPurge
from gateway.services import Services

OF_ADAPTER: Final = [f"{path}/purge" for path in ADAPTER]
OF_VERSION: Final = [f"{path}/purge" for path in VERSION]
SHOWN: Final = 200
GOES_ON: Final[dict[int, ResponseSpec]] = {
    202: ResponseSpec(PurgeOut, description="It resolves no more; control goes on with what is left.")
}


@post([f"{path}/restore" for path in ADAPTER], opt=WRITE, status_code=200, summary="Bring an adapter back")
async def restore_adapter(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    data: JSONBody[RestoreIn],
) -> RestoredOut:
    """All its retired versions that are within their retention; at most 500, the newest, at a time."""
    restored = await services.retirement.restore(principal, actor, name, None, aliases=data.aliases)
    return _restored(name, restored, services.catalog.base.name, viewer_of(request, principal))


@post([f"{path}/restore" for path in VERSION], opt=WRITE, status_code=200, summary="Bring a version back")
async def restore_version(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    number: FromPath[int],
    data: JSONBody[RestoreIn],
) -> RestoredOut:
    """As it was when it was retired. No alias points to it again unless that is asked for."""
    restored = await services.retirement.restore(principal, actor, name, number, aliases=data.aliases)
    return _restored(f"{name}@{number}", restored, services.catalog.base.name, viewer_of(request, principal))


@post(OF_ADAPTER, opt=WRITE, status_code=200, responses=GOES_ON, summary="Purge an adapter for good")
async def purge_adapter(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    data: JSONBody[PurgeIn],
) -> Response[PurgeOut]:
    """All its versions, whatever their state. Its name and numbers stay in the ledger and the audit log."""
    found = await services.retirement.purge(principal, actor, name, None, data.confirm)
    return _answer(_purge(name, found))


@post(OF_VERSION, opt=WRITE, status_code=200, responses=GOES_ON, summary="Purge a version for good")
async def purge_version(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    number: FromPath[int],
    data: JSONBody[PurgeIn],
) -> Response[PurgeOut]:
    """It stops resolving at once; 200 when no byte is left in the store and on any replica, which are asked
    afterwards; 202 while some are waited for. To ask again does no harm."""
    found = await services.retirement.purge(principal, actor, name, number, data.confirm)
    return _answer(_purge(f"{name}@{number}", found))


@get(OF_ADAPTER, opt=READ, summary="How far an adapter's purge is")
async def get_adapter_purge(
    services: NamedDependency[Services], principal: NamedDependency[Principal], name: FromPath[str]
) -> PurgeOut:
    return _purge(name, await services.retirement.purge_of(principal, name, None))


@get(OF_VERSION, opt=READ, summary="How far a version's purge is")
async def get_version_purge(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    number: FromPath[int],
) -> PurgeOut:
    return _purge(f"{name}@{number}", await services.retirement.purge_of(principal, name, number))


def _answer(purge: PurgeOut) -> Response[PurgeOut]:
    return Response(purge, status_code=202 if purge.state == "purging" else 200)


def _restored(target: str, restored: Restored, base: str, viewer: Viewer) -> RestoredOut:
    return RestoredOut(
        id=target,
        versions=[VersionOut.of(restored.adapter, version, base, viewer) for version in restored.versions],
        gone=restored.gone,
        aliases=restored.aliases,
        aliases_left=restored.aliases_left,
    )


def _purge(target: str, found: list[VersionPurge]) -> PurgeOut:
    states = Counter(each.state for each in found)
    return PurgeOut(
        id=target,
        state="purging" if states["purging"] else "purged",
        num_purging=states["purging"],
        num_purged=states["purged"],
        num_kept=states["kept"],
        versions=[_version(each) for each in found[:SHOWN]],
    )


def _version(found: VersionPurge) -> VersionPurgeOut:
    replicas = [
        ReplicaPurgeOut(replica=row.replica_id, state=cast(Any, row.state), changed_at=row.changed_at)
        for row in found.replicas
    ]
    return VersionPurgeOut(
        version=found.version.number,
        artefact=found.version.artefact,
        state=cast(Any, found.state),
        kept_for=found.kept_for,
        object_gone_at=None if found.purge is None else found.purge.object_gone_at,
        purged_at=found.version.purged_at,
        replicas=replicas,
    )


handlers = [
    restore_adapter,
    restore_version,
    purge_adapter,
    purge_version,
    get_adapter_purge,
    get_version_purge,
]
