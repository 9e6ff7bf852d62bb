"""The rules of retention, and the sweep that control's leader makes once an hour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from gateway.audit.service import Actor, Change, record
from gateway.db import Database, SystemRead, SystemWrite
from gateway.edits import require_match
from gateway.errors import BadRequest
from gateway.principal import TenantId
from gateway.retention import repository
from gateway.retention.kinds import KINDS, Kind, kind_of
from gateway.retention.schemas import RetentionOut, RetentionPatch, RuleOut
from gateway.tenants import repository as tenants

MAX_BATCHES: Final = 200
"""Of one kind and tenant in one round: the next goes on."""


class Retention:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, tenant: UUID) -> RetentionOut:
        async with self._db.system_reader() as session:
            return await _shown(session, tenant)

    async def of(self, tenant: UUID, kind: Kind) -> timedelta:
        """How long a tenant's things of one kind are kept."""
        async with self._db.system_reader() as session:
            own = await repository.rules_of(session, tenant)
        return timedelta(days=own.get(kind.name, kind.default_days))

    async def change(
        self, actor: Actor, tenant: UUID, wanted: RetentionPatch, if_match: str | None = None
    ) -> RetentionOut:
        """Raises `BadRequest` for an unknown kind, or days outside its bounds, and `PreconditionFailed` when
        the rules are not what `if_match` says."""
        for name, days in wanted.days.items():
            _check(name, days)
        async with self._db.system_session() as session:
            await tenants.lock(session, tenant)
            require_match(if_match, (await _shown(session, tenant)).fields())
            for name, days in wanted.days.items():
                if days is None:
                    await repository.forget(session, tenant, name)
                else:
                    await repository.put(session, tenant, name, days)
            record(
                session, actor, Change("retention.update", str(tenant), TenantId(tenant), dict(wanted.days))
            )
        return await self.get(tenant)

    async def sweep(self, now: datetime | None = None) -> int:
        """Deletes what is older than its tenant's rule, or the default; gives how many rows."""
        moment = now or datetime.now(UTC)
        gone = 0
        for kind in (each for each in KINDS if each.swept):
            async with self._db.system_reader() as session:
                rules = await repository.tenants_with(session, kind.name)
            for tenant, days in rules.items():
                gone += await self._batches(_of_tenant(kind, tenant, moment - timedelta(days=days)))
            rest = moment - timedelta(days=kind.default_days)
            gone += await self._batches(_of_others(kind, list(rules), rest))
        return gone

    async def _batches(self, batch: Callable[[SystemWrite], Awaitable[int]]) -> int:
        gone = 0
        for _ in range(MAX_BATCHES):
            async with self._db.system_session() as session:
                went = await batch(session)
            gone += went
            if went < repository.BATCH_ROWS:
                break
        return gone


async def _shown(session: SystemRead, tenant: UUID) -> RetentionOut:
    own = await repository.rules_of(session, tenant)
    return RetentionOut(
        rules=[
            RuleOut(
                kind=kind.name,
                what=kind.what,
                days=own.get(kind.name, kind.default_days),
                default_days=kind.default_days,
                is_default=kind.name not in own,
            )
            for kind in KINDS
        ]
    )


def _of_tenant(kind: Kind, tenant: UUID, before: datetime) -> Callable[[SystemWrite], Awaitable[int]]:
    return lambda session: repository.sweep_tenant(session, kind, tenant, before)


def _of_others(kind: Kind, but: list[UUID], before: datetime) -> Callable[[SystemWrite], Awaitable[int]]:
    return lambda session: repository.sweep_others(session, kind, but, before)


def _check(name: str, days: int | None) -> None:
    kind = kind_of(name)
    if kind is None:
        known = ", ".join(each.name for each in KINDS)
        raise BadRequest(f"There is no kind '{name}'. Kinds: {known}.", param="days", code="invalid_value")
    if days is not None and days < kind.min_days:
        raise BadRequest(
            f"'{name}' is kept for {kind.min_days} days at least.", param="days", code="invalid_value"
        )
    if days is not None and days > kind.max_days:
        raise BadRequest(
            f"'{name}' is kept for {kind.max_days} days at most.", param="days", code="invalid_value"
        )
