"""A tenant's adapters after their upload: lists, single ones, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from adapters.store import ObjectStore, artefact_path

from gateway.catalog import repository
from gateway.catalog.repository import AdapterRow, Line
from gateway.db import Database
from gateway.errors import NotFound
from gateway.models import AdapterVersion
from gateway.principal import TenantId
from gateway.tenants.epochs import Epochs, bump

log = structlog.get_logger(__name__)


class Hints(Protocol):
    """What replicas are told about artefacts. Hints only: no error of theirs is an error of a request."""

    async def prefetch(self, owner: TenantId, artefact: str) -> None: ...

    async def retire(self, owner: TenantId, artefact: str) -> None: ...


@dataclass(frozen=True, slots=True)
class VersionPage:
    adapter: AdapterRow
    versions: Sequence[AdapterVersion]


class Shelf:
    """Stored artefacts, which stay as long as a version refers to them."""

    def __init__(self, database: Database, store: ObjectStore, hints: Hints) -> None:
        self._database = database
        self.store = store
        self.hints = hints

    async def clear(self, tenant: TenantId, artefacts: Sequence[str]) -> None:
        """Removes what no version refers to any more, from replicas and the store. Never raises: what is left
        behind by a failure is garbage, not an error of the caller."""
        for artefact in artefacts:
            try:
                await self._clear_one(tenant, artefact)
            except Exception:
                log.exception("artefact_not_removed", tenant=str(tenant), artefact=artefact)

    async def _clear_one(self, tenant: TenantId, artefact: str) -> None:
        # The lock keeps an upload of the same content from finding the object and losing it right after.
        async with self._database.tenant_session(tenant) as session:
            await repository.lock_artefact(session, artefact)
            if await repository.is_referenced(session, tenant, artefact):
                return
            await asyncio.to_thread(self.store.delete, artefact_path(str(tenant), artefact))
        await self.hints.retire(tenant, artefact)


class Lifecycle:
    """Reads and ends adapters of one base. One a worker."""

    def __init__(self, database: Database, epochs: Epochs, shelf: Shelf, base_id: str) -> None:
        self._database = database
        self._epochs = epochs
        self._shelf = shelf
        self._base_id = base_id

    async def list_adapters(self, tenant: TenantId, after: str, limit: int) -> list[AdapterRow]:
        async with self._database.tenant_reader(tenant) as session:
            return await repository.list_adapters(session, self._line(tenant), after, limit)

    async def get_adapter(self, tenant: TenantId, name: str) -> AdapterRow:
        """Raises `NotFound`."""
        async with self._database.tenant_reader(tenant) as session:
            return _found(await repository.find_adapter(session, self._line(tenant), name), name)

    async def list_versions(self, tenant: TenantId, name: str, before: int | None, limit: int) -> VersionPage:
        """Newest first, below number `before`; raises `NotFound` for the adapter."""
        async with self._database.tenant_reader(tenant) as session:
            row = _found(await repository.find_adapter(session, self._line(tenant), name), name)
            return VersionPage(row, await repository.list_versions(session, row.adapter, before, limit))

    async def get_version(self, tenant: TenantId, name: str, number: int) -> VersionPage:
        """Raises `NotFound`."""
        async with self._database.tenant_reader(tenant) as session:
            row = _found(await repository.find_adapter(session, self._line(tenant), name), name)
            version = await repository.find_version(session, row.adapter, number)
        if version is None:
            raise adapter_not_found(f"{name}@{number}")
        return VersionPage(row, [version])

    async def retire(self, tenant: TenantId, name: str, number: int | None) -> None:
        """Version `number` (None = the whole adapter) resolves no more from here on; raises `NotFound`.

        What runs on it may finish. Its bytes go once no other version of the tenant has the same content.
        """
        async with self._database.tenant_session(tenant) as session:
            adapter = await repository.lock_adapter(session, self._line(tenant), name)
            artefacts = [] if adapter is None else await repository.retire_versions(session, adapter, number)
            if not artefacts:
                raise adapter_not_found(name if number is None else f"{name}@{number}")
            epoch = await bump(session, tenant)
        await self._epochs.publish(tenant, epoch)
        await self._shelf.clear(tenant, artefacts)

    def _line(self, tenant: TenantId) -> Line:
        return Line(tenant, self._base_id)


def adapter_not_found(name: str) -> NotFound:
    """Unknown, retired and another tenant's: the same answer."""
    return NotFound(f"The adapter '{name}' does not exist.", param="name", code="adapter_not_found")


def _found(row: AdapterRow | None, name: str) -> AdapterRow:
    if row is None:
        raise adapter_not_found(name)
    return row
