"""The places where things of a tenant lie, each able to list them and to delete them. In the order in which a
purge goes through them: what names others goes after what it names."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from redis.asyncio import Redis
from sqlalchemy import Table

from adapters.store import ObjectStore, artefact_of
from gateway.audit.service import SYSTEM
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.members import repository as members
from gateway.models import Base
from gateway.principal import TenantId
from gateway.redis import TenantKeys, redis_errors
from gateway.retirement import repository as retirement
from gateway.retirement.purge import Purges
from gateway.retirement.repository import Purged
from gateway.sharing import repository as sharing
from gateway.tenants import purge_repository as repository

SCAN_KEYS: Final = 1_000
PURGED_AT_ONCE: Final = 4


class StillThere(Unavailable):
    """Something can't be deleted yet; the purge goes on later."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """How many things, and the SHA-256 of their names: sorted, a line each."""

    count: int
    digest: str

    @classmethod
    def of(cls, names: Iterable[str]) -> Inventory:
        ordered = sorted(names)
        return cls(
            len(ordered), hashlib.sha256("".join(f"{name}\n" for name in ordered).encode()).hexdigest()
        )


class Part(Protocol):
    """`found` and `delete` raise `Unavailable` or `StoreError`, and may be repeated at any point."""

    @property
    def kind(self) -> str: ...

    async def found(self, tenant: TenantId) -> Inventory: ...

    async def delete(self, tenant: TenantId) -> None: ...


class ReplicaCaches:
    """Adapters on replicas' disks, in their memory and on their devices; their objects with them. Its list is
    of artefacts that they may hold; none may be left on any replica, so one that can't be asked holds up the
    purge."""

    kind = "replica_caches"

    def __init__(self, db: Database, store: ObjectStore, purges: Purges) -> None:
        self._db = db
        self._store = store
        self._purges = purges

    async def found(self, tenant: TenantId) -> Inventory:
        return Inventory.of(await self._artefacts(tenant))

    async def delete(self, tenant: TenantId) -> None:
        artefacts = sorted(await self._artefacts(tenant))
        silent: set[str] = set()
        left = 0
        for start in range(0, len(artefacts), PURGED_AT_ONCE):
            some = artefacts[start : start + PURGED_AT_ONCE]
            ended = await asyncio.gather(*(self._purge((tenant, each), silent) for each in some))
            left += len(ended) - sum(ended)
        if left:
            raise StillThere(f"Replicas may still hold {left} adapters of the tenant.")

    async def _purge(self, purged: Purged, silent: set[str]) -> bool:
        async with self._db.system_session() as session:
            await retirement.begin(session, purged, SYSTEM.name)
        return await self._purges.advance(purged, whoever_keeps=True, silent=silent)

    async def _artefacts(self, tenant: TenantId) -> set[str]:
        async with self._db.system_reader() as session:
            known = await repository.artefacts_of(session, tenant)
        stored = await _stored(self._store, tenant)
        return {*known, *(named[1] for path in stored if (named := artefact_of(path)) is not None)}


class StoredObjects:
    """Everything below the tenant's folder of the object store: artefacts, exports, puts that never ended."""

    kind = "stored_objects"

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def found(self, tenant: TenantId) -> Inventory:
        return Inventory.of(await _stored(self._store, tenant))

    async def delete(self, tenant: TenantId) -> None:
        for path in await _stored(self._store, tenant):
            await asyncio.to_thread(self._store.delete, path)
        await asyncio.to_thread(self._discard_puts, tenant)

    def _discard_puts(self, tenant: TenantId) -> None:
        for put in self._store.unfinished(0):
            if put.path.startswith(f"tenants/{tenant}/"):
                self._store.discard(put)


class Rows:
    """A tenant's rows of one table."""

    def __init__(self, db: Database, table: Table) -> None:
        self._db = db
        self._table = table
        self.kind = f"table:{table.name}"

    async def found(self, tenant: TenantId) -> Inventory:
        async with self._db.system_reader() as session:
            return Inventory.of(
                [name async for name in repository.names_of_rows(session, self._table, tenant)]
            )

    async def delete(self, tenant: TenantId) -> None:
        more = True
        while more:
            async with self._db.system_session() as session:
                more = await repository.delete_some(session, self._table, tenant) > 0


class SharesReceived:
    """That others let the tenant use their adapters. Whose they are stays as it is."""

    kind = "shares_received"

    def __init__(self, db: Database) -> None:
        self._db = db

    async def found(self, tenant: TenantId) -> Inventory:
        async with self._db.system_reader() as session:
            return Inventory.of(await sharing.received(session, tenant))

    async def delete(self, tenant: TenantId) -> None:
        more = True
        while more:
            async with self._db.system_session() as session:
                more = await sharing.end_received(session, tenant, repository.BATCH_ROWS) > 0


class Accounts:
    """Of people who are members of nothing else, and no operators: with them their passwords and sessions.
    They go together with their memberships, which are all that leads to them."""

    kind = "accounts"

    def __init__(self, db: Database) -> None:
        self._db = db

    async def found(self, tenant: TenantId) -> Inventory:
        async with self._db.system_reader() as session:
            return Inventory.of(str(account) for account in await members.accounts_of(session, tenant))

    async def delete(self, tenant: TenantId) -> None:
        await _end_memberships(self._db, tenant)


class Memberships(Rows):
    def __init__(self, db: Database) -> None:
        super().__init__(db, Base.metadata.tables["members"])

    async def delete(self, tenant: TenantId) -> None:
        await _end_memberships(self._db, tenant)


class RedisKeys:
    """Everything under the tenant's hash tag: limits, leases, cached answers, idempotency records, sessions,
    its place in the queue, its epoch."""

    kind = "redis_keys"

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def found(self, tenant: TenantId) -> Inventory:
        names: set[bytes] = set()
        async for page in self._pages(tenant):
            names |= page
        return Inventory.of(name.decode("utf-8", "backslashreplace") for name in names)

    async def delete(self, tenant: TenantId) -> None:
        async for page in self._pages(tenant):
            with redis_errors():
                await self._redis.unlink(*page)

    async def _pages(self, tenant: TenantId) -> AsyncIterator[set[bytes]]:
        """Names may come twice while keys are added."""
        pattern = TenantKeys(tenant).key("*")
        cursor = 0
        while True:
            with redis_errors():
                cursor, page = await self._redis.scan(cursor, match=pattern, count=SCAN_KEYS)
            if page:
                yield {name if isinstance(name, bytes) else name.encode() for name in page}
            if cursor == 0:
                return


def parts_of(db: Database, redis: Redis, store: ObjectStore, purges: Purges) -> list[Part]:
    tables: list[Part] = [Rows(db, table) for table in repository.purged_tables() if table.name != "members"]
    people: list[Part] = [Accounts(db), Memberships(db)]
    stored: list[Part] = [ReplicaCaches(db, store, purges), StoredObjects(store)]
    return [*stored, *people, *tables, SharesReceived(db), RedisKeys(redis)]


async def _end_memberships(db: Database, tenant: TenantId) -> None:
    more = True
    while more:
        async with db.system_session() as session:
            some = await members.some_of(session, tenant, repository.BATCH_ROWS)
            await members.remove(session, tenant, some)
            more = bool(some)


async def _stored(store: ObjectStore, tenant: TenantId) -> list[str]:
    return await asyncio.to_thread(lambda: list(store.list(f"tenants/{tenant}")))
