"""Versions whose object the store has lost: they stop resolving, and resolve again once it is back."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.audit.service import SYSTEM, Change, record
from gateway.catalog import stored
from gateway.catalog.told import state_changed
from gateway.db import Database, TenantWrite
from gateway.principal import TenantId
from gateway.store_checks import repository
from gateway.tenants.epochs import Epochs, bump


class Lost:
    """`epochs` None: nobody resolves here (tests of the store alone)."""

    def __init__(self, database: Database, epochs: Epochs | None = None) -> None:
        self._database = database
        self._epochs = epochs

    async def mark(self, stored: Sequence[tuple[TenantId, str]]) -> int:
        """Gives how many were not marked before."""
        marked = 0
        for tenant, artefact in stored:
            async with self._database.tenant_session(tenant) as session:
                versions = await repository.mark_lost(session, tenant, artefact)
                epoch = await self._tell(session, tenant, artefact, versions, "lost")
            await self._publish(tenant, epoch)
            marked += bool(versions)
        return marked

    async def unmark(self, found: Sequence[tuple[TenantId, str]]) -> int:
        """Their objects were read, and are whole."""
        for tenant, artefact in found:
            async with self._database.tenant_session(tenant) as session:
                versions = await repository.lost_versions(session, tenant, artefact)
                await stored.found_again(session, tenant, artefact)
                epoch = await self._tell(session, tenant, artefact, versions, "found")
            await self._publish(tenant, epoch)
        return len(found)

    async def _tell(
        self,
        session: TenantWrite,
        tenant: TenantId,
        artefact: str,
        versions: Sequence[tuple[str, int, str]],
        what: str,
    ) -> int | None:
        if not versions:
            return None
        for name, number, state in versions:
            await state_changed(session, tenant, name, number, "lost" if what == "lost" else state)
        named = [f"{name}@{number}" for name, number, _ in versions[:50]]
        record(session, SYSTEM, Change(f"adapter.{what}", artefact, tenant, {"versions": named}))
        return await bump(session, tenant)

    async def _publish(self, tenant: TenantId, epoch: int | None) -> None:
        if epoch is not None and self._epochs is not None:
            await self._epochs.publish(tenant, epoch)
