"""A tenant's adapters after their upload: lists, single ones, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from adapters.store import ObjectStore, artefact_path
from gateway.aliases.moves import require_unshared
from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository, stored
from gateway.catalog.names import MAX_VERSION, is_name
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import AdapterRow, Line
from gateway.catalog.told import state_changed
from gateway.db import Database, TenantRead
from gateway.errors import NotFound
from gateway.models import AdapterVersion, VersionState
from gateway.principal import Principal, TenantId
from gateway.retention.kinds import RETIRED_ADAPTERS
from gateway.retention.service import Retention
from gateway.sharing.ending import end_with_adapter, tell_recipients
from gateway.tenants.epochs import Epochs, bump

log = structlog.get_logger(__name__)


class Hints(Protocol):
    """What replicas are told about artefacts: never waited for, and no failure of one is an error."""

    def prefetch(self, owner: TenantId, artefact: str) -> None: ...

    def retire(self, owner: TenantId, artefact: str) -> None: ...


@dataclass(frozen=True, slots=True)
class VersionPage:
    adapter: AdapterRow
    versions: Sequence[AdapterVersion]


class Shelf:
    """Stored artefacts, which stay as long as a version has a claim to them."""

    def __init__(self, database: Database, store: ObjectStore, hints: Hints) -> None:
        self._database = database
        self.store = store
        self.hints = hints

    async def clear(self, tenant: TenantId, artefacts: Sequence[str]) -> int:
        """Removes what no version keeps any more, from replicas and the store; gives how many that were.
        Never raises: what is left behind by a failure is garbage, which control removes
        (`store_checks/fsck.py`), not an error of the caller."""
        removed = 0
        for artefact in artefacts:
            try:
                removed += await self._clear_one(tenant, artefact)
            except Exception:
                log.exception("artefact_not_removed", tenant=str(tenant), artefact=artefact)
        return removed

    async def _clear_one(self, tenant: TenantId, artefact: str) -> bool:
        # The lock keeps an upload of the same content from finding the object and losing it right after.
        async with self._database.tenant_session(tenant) as session:
            await stored.lock_artefact(session, artefact)
            if await stored.is_referenced(session, tenant, artefact):
                return False
            await asyncio.to_thread(self.store.delete, artefact_path(str(tenant), artefact))
        self.hints.retire(tenant, artefact)
        return True


class Lifecycle:
    """Reads and ends adapters of one base. One a worker."""

    def __init__(self, database: Database, epochs: Epochs, shelf: Shelf, base_id: str) -> None:
        self._database = database
        self._epochs = epochs
        self._shelf = shelf
        self._base_id = base_id
        self._retention = Retention(database)

    async def list_adapters(
        self,
        principal: Principal,
        after: str,
        limit: int,
        name_prefix: str | None = None,
        *,
        retired: bool = False,
    ) -> list[AdapterRow]:
        """Those the key may see, by name, after the name `after`; `retired`: with versions to restore."""
        line = self._line(principal.tenant)
        async with self._database.tenant_reader(principal.tenant) as session:
            return await repository.list_adapters(
                session,
                line,
                after=after,
                limit=limit,
                allowed=principal.allowed_models,
                name_prefix=name_prefix,
                retired=retired,
            )

    async def get_adapter(self, principal: Principal, name: str, *, retired_too: bool = False) -> AdapterRow:
        """`retired_too`: or else one with versions to restore. Raises `NotFound`."""
        try:
            async with self._adapter(principal, name) as (_, row):
                return row
        except NotFound:
            if not retired_too:
                raise
        async with self._adapter(principal, name, retired=True) as (_, row):
            return row

    async def list_versions(
        self, principal: Principal, name: str, before: int | None, limit: int, state: str | None = None
    ) -> VersionPage:
        """Newest first, below number `before`; raises `NotFound` for the adapter."""
        retired = state == VersionState.RETIRED
        async with self._adapter(principal, name, retired=retired) as (session, row):
            found = await repository.list_versions(session, row.adapter, before, limit, state)
            return VersionPage(row, found)

    async def get_version(
        self, principal: Principal, name: str, number: int, *, retired_too: bool = False
    ) -> VersionPage:
        """`retired_too`: or else one that can be restored. Raises `NotFound`."""
        if not 1 <= number <= MAX_VERSION:
            raise adapter_not_found(name, number)
        row = await self.get_adapter(principal, name, retired_too=retired_too)
        async with self._database.tenant_reader(principal.tenant) as session:
            version = await repository.find_version(session, row.adapter, number)
            if version is None and retired_too:
                version = await repository.find_version(session, row.adapter, number, retired=True)
        if version is None:
            raise adapter_not_found(name, number)
        return VersionPage(row, [version])

    async def retire(self, principal: Principal, actor: Actor, name: str, number: int | None) -> None:
        """Version `number` (None = the whole adapter) resolves no more from here on; raises `NotFound`.

        What runs on it may finish. Its bytes stay until its retention is over (`gateway/retirement`).
        """
        possible = is_name(name) and (number is None or 1 <= number <= MAX_VERSION)
        if not possible or not may(principal, Action.CHANGE, name):
            raise adapter_not_found(name, number)
        tenant = principal.tenant
        keep = await self._retention.of(tenant, RETIRED_ADAPTERS)
        async with self._database.tenant_session(tenant) as session:
            adapter = await repository.lock_adapter(session, self._line(tenant), name)
            if adapter is not None and number is not None:
                await require_unshared(session, adapter, number)
            retired = adapter and await repository.retire_versions(session, adapter, number, keep)
            if not retired:
                raise adapter_not_found(name, number)
            unused = await stored.not_in_use(session, tenant, retired)
            ended = [] if adapter is None else await end_with_adapter(session, actor, adapter)
            record(session, actor, _change(tenant, name, number))
            await state_changed(session, tenant, name, number, "retired")
            epoch = await bump(session, tenant)
        await self._epochs.publish(tenant, epoch)
        for artefact in unused:
            self._shelf.hints.retire(tenant, artefact)
        await tell_recipients(self._database, actor, tenant, name, ended)

    @asynccontextmanager
    async def _adapter(
        self, principal: Principal, name: str, *, retired: bool = False
    ) -> AsyncIterator[tuple[TenantRead, AdapterRow]]:
        if not is_name(name) or not may(principal, Action.SEE, name):
            raise adapter_not_found(name)
        async with self._database.tenant_reader(principal.tenant) as session:
            line = self._line(principal.tenant)
            row = await repository.find_adapter(session, line, name, retired=retired)
            if row is None:
                raise adapter_not_found(name)
            yield session, row

    def _line(self, tenant: TenantId) -> Line:
        return Line(tenant, self._base_id)


def _change(tenant: TenantId, name: str, number: int | None) -> Change:
    return Change("adapter.retire", name if number is None else f"{name}@{number}", tenant)


def adapter_not_found(name: str, number: int | None = None) -> NotFound:
    """Unknown, retired, not allowed and another tenant's: the same answer."""
    shown = name[:64] if number is None else f"{name[:64]}@{number}"
    return NotFound(f"The adapter '{shown}' does not exist.", param="name", code="adapter_not_found")
