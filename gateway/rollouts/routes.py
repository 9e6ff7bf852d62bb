"""HTTP of rollouts: a tenant's own, and for operators any tenant's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE, role_of
from gateway.audit.service import Actor
from gateway.catalog.allowed import Viewer
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.rollouts.repository import NEWEST_FIRST
from gateway.rollouts.schemas import RolloutIn, RolloutList, RolloutOut
from gateway.services import Services

ROLLOUTS = ["/v1/adapters/{name:str}/rollouts", "/api/v1/tenants/{tenant:uuid}/adapters/{name:str}/rollouts"]
ROLLOUT = [f"{path}/{{rollout_id:uuid}}" for path in ROLLOUTS]
READ: dict[str, object] = {SCOPE: Scope.ADAPTERS_READ}
WRITE: dict[str, object] = {SCOPE: Scope.ADAPTERS_WRITE}
AnyRequest = Request[Any, Any, Any]


@post(ROLLOUTS, opt=WRITE, summary="Step an alias to another version, and back by itself")
async def start_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    data: JSONBody[RolloutIn],
) -> RolloutOut:
    started = await services.rollouts.start(principal, actor, name, data)
    return RolloutOut.of(name, started, Viewer(principal, role_of(request.scope)))


@get(ROLLOUTS, opt=READ, summary="Rollouts of an adapter, newest first")
async def list_rollouts(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> RolloutList:
    given = {"tenant": principal.tenant, "adapter": name}
    (before,) = NEWEST_FIRST.start(cursor, given) or (None,)
    found = await services.rollouts.list_of(principal, name, before, limit + 1)
    cut = NEWEST_FIRST.cut(found, limit, lambda rollout: (rollout.id,), given)
    viewer = Viewer(principal, role_of(request.scope))
    return cut.fill(RolloutList, lambda rollout: RolloutOut.of(name, rollout, viewer))


@get(ROLLOUT, opt=READ, summary="One rollout: its figures as they are, and what happened")
async def get_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    rollout_id: FromPath[UUID],
) -> RolloutOut:
    seen = await services.rollouts.get(principal, name, rollout_id)
    return RolloutOut.of(name, seen.rollout, Viewer(principal, role_of(request.scope)), seen.events)


@post([f"{path}/pause" for path in ROLLOUT], opt=WRITE, status_code=200, summary="Go no step further")
async def pause_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    rollout_id: FromPath[UUID],
) -> RolloutOut:
    """It keeps its weight, and still rolls back by itself."""
    changed = await services.rollouts.pause(principal, actor, name, rollout_id)
    return RolloutOut.of(name, changed, Viewer(principal, role_of(request.scope)))


@post([f"{path}/resume" for path in ROLLOUT], opt=WRITE, status_code=200, summary="Go on")
async def resume_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    rollout_id: FromPath[UUID],
) -> RolloutOut:
    changed = await services.rollouts.resume(principal, actor, name, rollout_id)
    return RolloutOut.of(name, changed, Viewer(principal, role_of(request.scope)))


@post([f"{path}/promote" for path in ROLLOUT], opt=WRITE, status_code=200, summary="End it: the new version")
async def promote_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    rollout_id: FromPath[UUID],
) -> RolloutOut:
    changed = await services.rollouts.promote(principal, actor, name, rollout_id)
    return RolloutOut.of(name, changed, Viewer(principal, role_of(request.scope)))


@post([f"{path}/rollback" for path in ROLLOUT], opt=WRITE, status_code=200, summary="End it: the old version")
async def roll_back_rollout(
    request: AnyRequest,
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    rollout_id: FromPath[UUID],
) -> RolloutOut:
    changed = await services.rollouts.roll_back(principal, actor, name, rollout_id)
    return RolloutOut.of(name, changed, Viewer(principal, role_of(request.scope)))


handlers = [
    list_rollouts,
    start_rollout,
    get_rollout,
    pause_rollout,
    resume_rollout,
    promote_rollout,
    roll_back_rollout,
]
