"""Wire types of replicas, pool rules and weights."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.actions import Call, allowed
from gateway.catalog.names import NAME_PATTERN
from gateway.models import PoolRule, Replica, ReplicaSource, ReplicaState
from gateway.paging import Page
from gateway.principal import Role
from gateway.replicas import registry
from gateway.replicas.breaker import BreakerState
from gateway.replicas.rules import MAX_RULES
from gateway.replicas.tokens import MAX_CHARACTERS, MIN_CHARACTERS

MAX_POOLS = 8
MAX_DIGESTS = 16

_HOST = r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_PORT = r"(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
Url = Annotated[
    str,
    Meta(
        pattern=rf"^https?://{_HOST}{_PORT}(/[A-Za-z0-9._~/-]{{0,128}})?$",
        max_length=400,
        description="How gateways reach it.",
    ),
]
Pool = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="`general` takes what no rule sends elsewhere."),
]
Pools = Annotated[list[Pool], Meta(min_length=1, max_length=MAX_POOLS)]
Token = Annotated[
    str,
    Meta(
        min_length=MIN_CHARACTERS,
        max_length=MAX_CHARACTERS,
        pattern=r"^[\x21-\x7e]+$",
        description="Its bearer token. Kept sealed, never shown.",
    ),
]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class ReplicaCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`token` absent: it has the one that all replicas share."""

    url: Url
    pools: Pools = msgspec.field(default_factory=lambda: ["general"])
    token: Token | None = None


class ReplicaPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absent means unchanged. `draining`: what runs there ends there, nothing new goes there."""

    state: Literal["up", "draining"] | UnsetType = UNSET
    pools: Pools | UnsetType = UNSET

    @staticmethod
    def fields_of(replica: Replica | ReplicaOut) -> dict[str, Any]:
        """What it may change, as it is."""
        return {"state": str(replica.state), "pools": list(replica.pools)}


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a replica says of itself, every few seconds. `token`: what it wants to be asked with."""

    url: Url
    base_id: Digest
    token: Token
    base_digest: Digest | None = None
    pools: Pools = msgspec.field(default_factory=lambda: ["general"])


class Registered(msgspec.Struct, frozen=True):
    """`heartbeat_s`: when it should say so again."""

    id: UUID
    state: ReplicaState
    heartbeat_s: float


class TokenChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`token` absent: one is made."""

    token: Token | None = None


ReplicaAction = Literal["drain", "resume", "change_pools", "change_token", "remove"]
_REPLICA = "/api/v1/replicas/{replica}"
ACTIONS: Final[Mapping[ReplicaAction, Call]] = {
    "drain": Call("PATCH", _REPLICA),
    "resume": Call("PATCH", _REPLICA),
    "change_pools": Call("PATCH", _REPLICA),
    "change_token": Call("POST", f"{_REPLICA}/token"),
    "remove": Call("DELETE", _REPLICA),
}


class ReplicaOut(msgspec.Struct, frozen=True):
    """`can`: what whoever asks may do with it. `health` to `kv_blocks_used` are what the worker that answers
    knows; the load is that of all workers. `running` to `kv_blocks_used` are its own word, null where it
    doesn't say. `own_token`: it has a token of its own."""

    id: UUID
    url: str
    base_id: str
    state: ReplicaState
    source: ReplicaSource
    pools: list[str]
    own_token: bool
    health: Literal["ready", "down", "unfit", "unknown"]
    reason: str | None
    breaker: BreakerState | None
    base_digest: str | None
    in_flight: int
    in_flight_tokens: int
    adapters_in_slots: int
    adapters_in_memory: int
    num_slots: int | None  # for adapters
    running: int | None  # sequences
    waiting: int | None
    waiting_tokens: int | None
    kv_blocks: int | None
    kv_blocks_used: int | None  # by running requests
    seen_at: datetime
    created_at: datetime
    token_changed_at: datetime | None
    can: list[ReplicaAction]

    @classmethod
    def of(cls, row: Replica, live: registry.Replica | None) -> ReplicaOut:
        view = live.view if live is not None and live.healthy else None
        return cls(
            id=row.id,
            url=row.url,
            base_id=row.base_id,
            state=ReplicaState(row.state),
            source=ReplicaSource(row.source),
            pools=list(row.pools),
            own_token=row.token is not None,
            health=_health(live),
            reason=live.unfit if live is not None else None,
            breaker=live.breaker.state if live is not None else None,
            base_digest=(live.view.base_digest if live is not None else None) or row.base_digest,
            in_flight=live.in_flight + live.elsewhere if live is not None else 0,
            in_flight_tokens=live.in_flight_tokens + live.elsewhere_tokens if live is not None else 0,
            adapters_in_slots=len(live.view.device) if live is not None else 0,
            adapters_in_memory=len(live.view.host) if live is not None else 0,
            num_slots=view.num_slots if view is not None else None,
            running=view.running if view is not None else None,
            waiting=view.waiting if view is not None else None,
            waiting_tokens=view.waiting_tokens if view is not None else None,
            kv_blocks=view.kv_blocks if view is not None else None,
            kv_blocks_used=view.kv_blocks_used if view is not None else None,
            seen_at=row.seen_at,
            created_at=row.created_at,
            token_changed_at=row.token_changed_at,
            can=allowed(ACTIONS, Role.OPERATOR, without={"drain" if row.state != "up" else "resume"}),
        )


def _health(live: registry.Replica | None) -> Literal["ready", "down", "unfit", "unknown"]:
    if live is None:
        return "unknown"
    if not live.healthy:
        return "down"
    return "ready" if live.unfit is None else "unfit"


class ReplicaPage(Page[ReplicaOut], frozen=True, kw_only=True):
    data: list[ReplicaOut]


class TokenChanged(msgspec.Struct, frozen=True):
    """`token` is shown now and never again; null when it was given."""

    replica: ReplicaOut
    token: str | None


class RuleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All conditions that are named must hold. `adapter` by its name, or owner/name of one that is shared;
    `tenant` is who asks."""

    pool: Pool
    fallback: bool = True
    min_prompt_tokens: Tokens | None = None
    min_answer_tokens: Tokens | None = None
    service_class: Literal["interactive", "standard", "batch"] | None = None
    tenant: UUID | None = None
    adapter: Annotated[str, Meta(pattern=rf"^({NAME_PATTERN}/)?{NAME_PATTERN}$")] | None = None

    @classmethod
    def of(cls, row: PoolRule) -> RuleBody:
        return cls(**{name: getattr(row, name) for name in cls.__struct_fields__})

    def row(self, base_id: str, position: int) -> PoolRule:
        return PoolRule(
            base_id=base_id,
            position=position,
            **{name: getattr(self, name) for name in self.__struct_fields__},
        )


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In order: the first that fits decides; without one it is the pool `general`."""

    rules: Annotated[list[RuleBody], Meta(max_length=MAX_RULES)]


RulesAction = Literal["change"]
RULES_ACTIONS: Final[Mapping[RulesAction, Call]] = {"change": Call("PUT", "/api/v1/pool-rules")}


class RulesOut(msgspec.Struct, frozen=True):
    rules: list[RuleBody]
    can: list[RulesAction]


WeightsAction = Literal["change"]
WEIGHTS_ACTIONS: Final[Mapping[WeightsAction, Call]] = {"change": Call("PUT", "/api/v1/base-weights")}


class WeightsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights that may serve the base, by their digests. What `MOTET_BASE_DIGESTS` says goes before."""

    digests: Annotated[list[Digest], Meta(min_length=1, max_length=MAX_DIGESTS)]


class WeightsOut(msgspec.Struct, frozen=True):
    """`digests` null: no replica has told any yet. `seen`: what each replica tells, by its URL. `settled`:
    `MOTET_BASE_DIGESTS` says which may serve, and goes before."""

    base_id: str
    digests: list[str] | None
    seen: dict[str, str | None]
    settled: bool
    can: list[WeightsAction]
