"""The rules of replicas: who may be one, how it is drained, removed, and asked. Workers follow within seconds
(`roster.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from pydantic import SecretStr
from sqlalchemy import func
from sqlalchemy.exc import IntegrityError

from gateway.actions import allowed
from gateway.audit.service import SYSTEM, Actor, Change, record
from gateway.db import Database, SystemWrite
from gateway.edits import require_match
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.models import Replica, ReplicaSource, ReplicaState
from gateway.paging import ById
from gateway.principal import Role
from gateway.replicas import repository
from gateway.replicas.registry import Registry
from gateway.replicas.schemas import (
    WEIGHTS_ACTIONS,
    Registered,
    Registration,
    ReplicaCreate,
    ReplicaOut,
    ReplicaPatch,
    RuleBody,
    WeightsOut,
)
from gateway.replicas.tokens import ReplicaTokens, new_token
from gateway.upgrades.repository import assume, lock_base

MAX_REPLICAS: Final = 256
"""Of one base; those that registered themselves count while they say that they are there."""
SILENT_AFTER: Final = timedelta(minutes=10)
HEARTBEAT_S: Final = 5.0
FORGET_AFTER: Final = timedelta(days=1)
"""A removed or silent replica's journal may be read so long."""
UNLISTED_AFTER: Final = timedelta(hours=1)
"""A replica that settings listed, and no running gateway's or control's do any more, is known so long."""


class Replicas:
    """One per worker; `registry` is that worker's."""

    def __init__(
        self, db: Database, base_id: str, tokens: ReplicaTokens, registry: Registry, *, settled: bool = False
    ) -> None:
        """`settled`: the settings say which weights may serve."""
        self._db = db
        self._base_id = base_id
        self._tokens = tokens
        self._registry = registry
        self._settled = settled

    async def page(self, start: ById | None, limit: int) -> list[ReplicaOut]:
        """By id."""
        async with self._db.system_reader() as session:
            rows = await repository.page(session, self._base_id, start, limit)
        return [self._shown(row) for row in rows]

    async def get(self, replica: UUID) -> ReplicaOut:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            return self._shown(_existing(await repository.find(session, self._base_id, replica)))

    async def create(self, actor: Actor, wanted: ReplicaCreate) -> ReplicaOut:
        """Raises `Conflict` when it is there already, or when there are too many."""
        url = wanted.url.rstrip("/")
        values: dict[str, Any] = {"pools": _distinct(wanted.pools), "source": ReplicaSource.OPERATOR}
        if wanted.token is not None:
            values |= {
                "token": self._tokens.seal(url, SecretStr(wanted.token)),
                "token_changed_at": func.now(),
            }
        async with self._db.system_session() as session:
            row = await repository.by_url(session, url)
            if row is not None and row.removed_at is None:
                raise Conflict("This replica is registered already.", param="url")
            row = await self._add(session, row, url, values)
            record(session, actor, Change("replica.create", url, details={"pools": row.pools}))
        return self._shown(row)

    async def change(
        self, actor: Actor, replica: UUID, wanted: ReplicaPatch, if_match: str | None = None
    ) -> ReplicaOut:
        """Raises `NotFound`, and `PreconditionFailed` for one that is not what `if_match` says."""
        named = {"state": wanted.state, "pools": wanted.pools}
        values = {name: value for name, value in named.items() if value is not msgspec.UNSET}
        if not values:
            raise BadRequest("Name at least one field to change.")
        if isinstance(wanted.pools, list):
            values["pools"] = _distinct(wanted.pools)
        async with self._db.system_session() as session:
            before = _existing(await repository.lock(session, self._base_id, replica))
            require_match(if_match, ReplicaPatch.fields_of(before))
            row = _existing(await repository.change(session, self._base_id, replica, values))
            record(session, actor, Change("replica.update", row.url, details=values))
        return self._shown(row)

    async def remove(self, actor: Actor, replica: UUID) -> ReplicaOut:
        """Nothing new goes there; what runs there ends there, and control reads its journal for a day more.
        Raises `NotFound`."""
        values = {"state": ReplicaState.DOWN, "removed_at": func.now()}
        async with self._db.system_session() as session:
            row = _existing(await repository.change(session, self._base_id, replica, values))
            record(session, actor, Change("replica.remove", row.url))
        return self._shown(row)

    async def change_token(
        self, actor: Actor, replica: UUID, given: str | None
    ) -> tuple[ReplicaOut, str | None]:
        """The new one is tried first, the one before is still sent where the replica refuses it; so neither
        side has to change at the same moment. Raises `NotFound`."""
        token = SecretStr(given) if given is not None else new_token()
        async with self._db.system_session() as session:
            row = _existing(await repository.find(session, self._base_id, replica))
            before = row.token
            if before is None and self._tokens.shared:
                before = self._tokens.seal(row.url, SecretStr(self._tokens.shared[0]))
            values = {
                "token": self._tokens.seal(row.url, token),
                "token_previous": before,
                "token_changed_at": func.now(),
            }
            row = _existing(await repository.change(session, self._base_id, replica, values))
            record(session, actor, Change("replica.rotate_token", row.url))
        return self._shown(row), None if given is not None else token.get_secret_value()

    async def register(self, said: Registration) -> Registered:
        """A replica says that it is there; every few seconds. One that an operator removed stays removed.
        Raises `Conflict` for another base, and when there are too many."""
        if said.base_id != self._base_id:
            raise Conflict("This gateway serves another base.", param="base_id", code="other_base")
        url, token = said.url.rstrip("/"), SecretStr(said.token)
        async with self._db.system_session() as session:
            row = await repository.by_url(session, url)
            if row is None:
                values = {
                    "pools": _distinct(said.pools),
                    "source": ReplicaSource.SELF,
                    "token": self._tokens.seal(url, token),
                    "token_changed_at": func.now(),
                    "base_digest": said.base_digest,
                }
                row = await self._add(session, None, url, values)
                record(session, Actor(f"replica:{url}"), Change("replica.register", url))
            else:
                if row.base_id != self._base_id:
                    raise Conflict("It is registered with another base.", param="url", code="other_base")
                changed: dict[str, Any] = {"base_digest": said.base_digest}
                if not self._tokens.opens(row, token):
                    changed |= {"token": self._tokens.seal(url, token), "token_previous": row.token}
                    changed["token_changed_at"] = func.now()
                    record(session, Actor(f"replica:{url}"), Change("replica.rotate_token", url))
                await repository.seen(session, url, changed)
        return Registered(row.id, ReplicaState(row.state), HEARTBEAT_S)

    async def rules(self) -> list[RuleBody]:
        async with self._db.system_reader() as session:
            return [RuleBody.of(row) for row in await repository.rules_of(session, self._base_id)]

    async def set_rules(
        self, actor: Actor, rules: Sequence[RuleBody], if_match: str | None = None
    ) -> list[RuleBody]:
        """All of them at once, in order. Raises `PreconditionFailed` for those that are not what `if_match`
        says."""
        async with self._db.system_session() as session:
            await lock_base(session, self._base_id)
            before = [RuleBody.of(row) for row in await repository.rules_of(session, self._base_id)]
            require_match(if_match, {"rules": before})
            rows = [rule.row(self._base_id, position) for position, rule in enumerate(rules, 1)]
            await repository.replace_rules(session, self._base_id, rows)
            details = {"rules": msgspec.to_builtins(list(rules))}
            record(session, actor, Change("pool_rules.update", self._base_id, details=details))
        return list(rules)

    async def weights(self) -> WeightsOut:
        async with self._db.system_reader() as session:
            digests = await repository.digests_of(session, self._base_id)
        seen = {replica.url: replica.view.base_digest for replica in self._registry.all}
        can = allowed(WEIGHTS_ACTIONS, Role.OPERATOR)
        return WeightsOut(self._base_id, digests, seen, self._settled, can)

    async def set_weights(
        self, actor: Actor, digests: Sequence[str], if_match: str | None = None
    ) -> WeightsOut:
        """Raises `PreconditionFailed` for those that are not what `if_match` says."""
        async with self._db.system_session() as session:
            await lock_base(session, self._base_id)
            before = await repository.digests_of(session, self._base_id)
            require_match(if_match, {"digests": before})
            await assume(session, self._base_id, before or [])
            await repository.set_digests(session, self._base_id, _distinct(digests))
            record(
                session, actor, Change("weights.update", self._base_id, details={"digests": list(digests)})
            )
        return await self.weights()

    async def _add(
        self, session: SystemWrite, removed: Replica | None, url: str, values: dict[str, Any]
    ) -> Replica:
        """A new row, or one that was removed, as if it were new."""
        if removed is not None:
            await session.delete(removed)
            await session.flush()
        if await repository.count(session, self._base_id, SILENT_AFTER) >= MAX_REPLICAS:
            raise Conflict(
                f"There are {MAX_REPLICAS} replicas already; remove some.", code="too_many_replicas"
            )
        row = Replica(url=url, base_id=self._base_id, state=ReplicaState.UP, **values)
        session.add(row)
        try:
            await session.flush()
        except IntegrityError as error:
            raise Conflict("It was registered at this moment by another request.", param="url") from error
        await session.refresh(row)
        return row

    def _shown(self, row: Replica) -> ReplicaOut:
        live = next((one for one in self._registry.all if one.url == row.url), None)
        return ReplicaOut.of(row, live)


async def purge(db: Database, base_id: str) -> int:
    """Control's job: forgets replicas whose journals nobody needs any more, and those that nobody lists."""
    async with db.system_session() as session:
        gone = await repository.purge(session, base_id, FORGET_AFTER, UNLISTED_AFTER)
        for url in gone:
            record(session, SYSTEM, Change("replica.forget", url))
    return len(gone)


def _existing(row: Replica | None) -> Replica:
    if row is None:
        raise NotFound("There is no such replica.")
    return row


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
