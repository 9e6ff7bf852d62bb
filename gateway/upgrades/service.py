"""A base's move to other weights: old and new replicas side by side, adapters following once proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from gateway.actions import allowed
from gateway.audit.service import Actor, Change, record
from gateway.db import Database, SystemRead
from gateway.errors import Conflict, NotFound
from gateway.models import BaseUpgrade, UpgradeState
from gateway.principal import Role
from gateway.replicas import repository as replicas
from gateway.upgrades import repository
from gateway.upgrades.schemas import (
    BASE_ACTIONS,
    UPGRADE_ACTIONS,
    BaseOut,
    LeftBehind,
    UpgradeEnd,
    UpgradeOut,
)

OTHER_BASE: Final = "other_base"
MAX_DIGESTS: Final = 16


class Upgrades:
    """One per worker. `settled`: the settings say which weights may serve, and nothing else does."""

    def __init__(self, database: Database, base_id: str, *, settled: bool) -> None:
        self._database = database
        self._base_id = base_id
        self._settled = settled

    async def bases(self) -> list[BaseOut]:
        """By name."""
        async with self._database.system_reader() as session:
            rows = await repository.bases(session)
            begun = await repository.upgrades(session)
            told = {id(each): await self._told(session, each) for each in begun}
        return [
            BaseOut(
                id=row.base_id,
                name=row.name,
                served=row.base_id == self._base_id,
                digests=row.digests,
                upgrades=[told[id(each)] for each in begun if each.base_id == row.base_id],
                created_at=row.created_at,
                can=allowed(
                    BASE_ACTIONS,
                    Role.OPERATOR,
                    without={"begin_upgrade"} if self._settled or not row.digests else (),
                ),
            )
            for row in rows
        ]

    async def begin(self, actor: Actor, base_id: str, base_digest: str) -> UpgradeOut:
        """Lets the weights in beside those that serve now. Raises `NotFound`, and `Conflict`."""
        if self._settled:
            message = "MOTET_BASE_DIGESTS says which weights may serve; an upgrade needs that to be unset."
            raise Conflict(message, code="digests_in_settings")
        async with self._database.system_session() as session:
            base = await repository.lock_base(session, base_id)
            if base is None:
                raise NotFound("There is no such base.")
            digests = base.digests or []
            if not digests or base_digest in digests:
                raise Conflict("These weights serve already, or no weights do.", code="no_upgrade")
            if len(digests) >= MAX_DIGESTS:
                raise Conflict(f"A base has at most {MAX_DIGESTS} weights at a time.", code="no_upgrade")
            await repository.assume(session, base_id, digests)
            await repository.begin(session, base_id, base_digest)
            await replicas.set_digests(session, base_id, [*digests, base_digest])
            record(session, actor, Change("base.upgrade", base_id, details={"base_digest": base_digest}))
        return await self._one(base_id, base_digest)

    async def end(self, actor: Actor, base_id: str, base_digest: str, wanted: UpgradeEnd) -> UpgradeOut:
        """Raises `NotFound` when none is under way, and `Conflict` while versions would be left behind."""
        new = wanted.keep == "new"
        state = UpgradeState.FINISHED if new else UpgradeState.ABANDONED
        async with self._database.system_session() as session:
            base = await repository.lock_base(session, base_id)
            if base is None or not await repository.end(session, base_id, base_digest, state):
                raise NotFound("No upgrade to these weights is under way.")
            progress = await repository.progress(session, base_id, base_digest)
            if new and progress.failed + progress.left and not wanted.leave_behind:
                message = (
                    f"{progress.failed} versions failed on these weights and {progress.left} are not proved."
                )
                raise Conflict(message, code="upgrade_not_over")
            old = [digest for digest in base.digests or [] if digest != base_digest]
            await replicas.set_digests(session, base_id, [base_digest] if new else old)
            details = {"base_digest": base_digest, "keep": wanted.keep, "failed": progress.failed}
            record(session, actor, Change("base.end_upgrade", base_id, details=details))
        return await self._one(base_id, base_digest)

    async def left_behind(
        self, base_id: str, base_digest: str | None, after: UUID | None, limit: int
    ) -> Sequence[tuple[UUID, LeftBehind]]:
        """By version, with its id."""
        async with self._database.system_reader() as session:
            rows = await repository.left_behind(session, base_id, base_digest, after, limit)
        return [
            (
                version.id,
                LeftBehind(
                    tenant=version.tenant_id,
                    id=f"{adapter.name}@{version.number}",
                    base_id=adapter.base_id,
                    reason=reason or OTHER_BASE,
                ),
            )
            for version, adapter, reason in rows
        ]

    async def _one(self, base_id: str, base_digest: str) -> UpgradeOut:
        async with self._database.system_reader() as session:
            found = await session.get_one(BaseUpgrade, (base_id, base_digest))
            return await self._told(session, found)

    async def _told(self, session: SystemRead, upgrade: BaseUpgrade) -> UpgradeOut:
        progress = await repository.progress(session, upgrade.base_id, upgrade.base_digest)
        return UpgradeOut(
            base_digest=upgrade.base_digest,
            state=upgrade.state,
            proved=progress.proved,
            failed=progress.failed,
            left=progress.left,
            started_at=upgrade.started_at,
            ended_at=upgrade.ended_at,
            can=allowed(
                UPGRADE_ACTIONS,
                Role.OPERATOR,
                without=() if upgrade.state == UpgradeState.PROVING else {"end"},
            ),
        )
