"""HTTP of replicas: operators', and the one route by which replicas register themselves."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, Response, delete, get, patch, post, put
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import PUBLIC
from gateway.actions import allowed
from gateway.audit.service import Actor
from gateway.credentials import same_secret
from gateway.edits import IfMatch, tag_of
from gateway.errors import Unauthenticated
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.principal import Role
from gateway.replicas.repository import BY_ID
from gateway.replicas.schemas import (
    RULES_ACTIONS,
    Registered,
    Registration,
    ReplicaCreate,
    ReplicaOut,
    ReplicaPage,
    ReplicaPatch,
    RuleBody,
    Rules,
    RulesOut,
    TokenChange,
    TokenChanged,
    WeightsBody,
    WeightsOut,
)
from gateway.services import Services

Found = NamedDependency[Services]
Acting = NamedDependency[Actor]


@get("/api/v1/replicas", summary="Replicas of this base, by id")
async def list_replicas(
    services: Found, cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> ReplicaPage:
    found = await services.replicas.page(BY_ID.start(cursor), limit + 1)
    return BY_ID.cut(found, limit, lambda replica: (replica.id,)).fill(ReplicaPage, lambda replica: replica)


@post("/api/v1/replicas", summary="Register a replica")
async def create_replica(services: Found, actor: Acting, data: JSONBody[ReplicaCreate]) -> ReplicaOut:
    return await services.replicas.create(actor, data)


@get("/api/v1/replicas/{replica:uuid}", summary="One replica, as the worker that answers sees it")
async def get_replica(services: Found, replica: FromPath[UUID]) -> Response[ReplicaOut]:
    return _tagged(await services.replicas.get(replica))


@patch("/api/v1/replicas/{replica:uuid}", summary="Drain a replica, take it back, or change its pools")
async def change_replica(
    services: Found,
    actor: Acting,
    replica: FromPath[UUID],
    data: JSONBody[ReplicaPatch],
    if_match: IfMatch = None,
) -> Response[ReplicaOut]:
    return _tagged(await services.replicas.change(actor, replica, data, if_match))


@delete("/api/v1/replicas/{replica:uuid}", summary="Remove a replica", status_code=200)
async def remove_replica(services: Found, actor: Acting, replica: FromPath[UUID]) -> ReplicaOut:
    return await services.replicas.remove(actor, replica)


@post("/api/v1/replicas/{replica:uuid}/token", summary="Change a replica's token", status_code=200)
async def change_token(
    services: Found, actor: Acting, replica: FromPath[UUID], data: JSONBody[TokenChange]
) -> TokenChanged:
    shown, token = await services.replicas.change_token(actor, replica, data.token)
    return TokenChanged(shown, token)


@put(
    "/api/v1/replica-registration",
    opt={PUBLIC: True},
    summary="A replica registers itself, with the registration token",
)
async def register(
    request: Request[Any, Any, State], services: Found, data: JSONBody[Registration]
) -> Registered:
    """Its own credential instead of an operator's: all that it allows is this."""
    settings = services.settings
    given = request.headers.get("authorization", "")
    known = [settings.registration_token, settings.registration_token_previous]
    matches = [
        same_secret(given, f"Bearer {token.get_secret_value()}") for token in known if token is not None
    ]
    if not any(matches):
        raise Unauthenticated(
            "The registration token is missing or wrong, or this gateway has none.",
            code="invalid_registration_token",
        )
    return await services.replicas.register(data)


@get("/api/v1/pool-rules", summary="Which requests go to which pool of replicas, in order")
async def get_rules(services: Found) -> Response[RulesOut]:
    return _rules(await services.replicas.rules())


@put("/api/v1/pool-rules", summary="Replace the rules, all at once")
async def set_rules(
    services: Found, actor: Acting, data: JSONBody[Rules], if_match: IfMatch = None
) -> Response[RulesOut]:
    return _rules(await services.replicas.set_rules(actor, data.rules, if_match))


@get("/api/v1/base-weights", summary="Which weights may serve the base")
async def get_weights(services: Found) -> Response[WeightsOut]:
    return _weights(await services.replicas.weights())


@put("/api/v1/base-weights", summary="Admit weights, or withdraw some")
async def set_weights(
    services: Found, actor: Acting, data: JSONBody[WeightsBody], if_match: IfMatch = None
) -> Response[WeightsOut]:
    return _weights(await services.replicas.set_weights(actor, data.digests, if_match))


def _tagged(replica: ReplicaOut) -> Response[ReplicaOut]:
    return Response(replica, headers={"etag": tag_of(ReplicaPatch.fields_of(replica))})


def _rules(rules: list[RuleBody]) -> Response[RulesOut]:
    shown = RulesOut(rules, allowed(RULES_ACTIONS, Role.OPERATOR))
    return Response(shown, headers={"etag": tag_of({"rules": rules})})


def _weights(weights: WeightsOut) -> Response[WeightsOut]:
    return Response(weights, headers={"etag": tag_of({"digests": weights.digests})})


handlers = [
    list_replicas,
    create_replica,
    get_replica,
    change_replica,
    remove_replica,
    change_token,
    register,
    get_rules,
    set_rules,
    get_weights,
    set_weights,
]
