"""A tenant with something of everything, and a purge that can be cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from sqlalchemy import func, select, text, update

from adapters.store import ObjectStore, artefact_path, open_store
from gateway.answers.shelf import Shelf
from gateway.audit.service import Actor
from gateway.catalog import repository as catalog
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.ids import uuid7
from gateway.members import repository as members
from gateway.models import ApiKey, BillingExport, Member, Offboarding, PoolRule, Tenant
from gateway.principal import TenantId
from gateway.redis import TenantKeys
from gateway.replicas.driver import Purge, UpstreamFailed
from gateway.replicas.repository import add_listed
from gateway.retirement.purge import Purges
from gateway.tenants.epochs import Epochs
from gateway.tenants.offboarding import Offboardings
from gateway.tenants.purge_parts import Part, parts_of
from gateway.tenants.purging import Purger
from gateway.tenants.schemas import OffboardingIn
from gateway.tenants.service import Tenants

OPERATOR = Actor("admin:op@example.com")


@dataclass
class FakeReplica:
    """What the purge asks of a replica: an engine can't be told to be slow to forget."""

    held: set[str] = field(default_factory=set)
    purged: list[tuple[str, str]] = field(default_factory=list)
    away: bool = False
    deaf: bool = False

    async def purge(self, artefact: str, owner: str) -> Purge:
        if self.away:
            raise UpstreamFailed("the replica can't be reached", sent=False)
        if self.deaf:
            return Purge.HELD
        self.purged.append((artefact, owner))
        self.held.discard(artefact)
        return Purge.DONE


def url_of(base_id: str, number: int) -> str:
    return f"http://{base_id[:12]}.example:{number}"


@dataclass
class House:
    """Where tenants live."""

    db: Database
    redis: Redis
    store: ObjectStore
    root: Path
    replicas: list[FakeReplica]
    base_id: str = ""  # of the line that was furnished last

    @property
    def offboardings(self) -> Offboardings:
        return Offboardings(self.db, Epochs(self.redis), 168)

    @property
    def tenants(self) -> Tenants:
        return Tenants(self.db, Epochs(self.redis))

    def parts(self) -> list[Part]:
        drivers: Any = {url_of(self.base_id, n): replica for n, replica in enumerate(self.replicas)}
        return parts_of(
            self.db, self.redis, self.store, Purges(self.db, self.store, lambda: drivers, self.base_id)
        )

    async def furnish(self, line: Line) -> list[str]:
        """Gives the artefacts."""
        tenant = line.tenant
        artefacts = [uuid4().hex * 2 for _ in range(3)]
        async with self.db.tenant_session(tenant) as session:
            for n in range(2):
                session.add(
                    ApiKey(
                        id=uuid7(),
                        tenant_id=tenant,
                        key_id=uuid4().hex[:12],
                        name=f"key {n}",
                        secret_hmac=bytes(32),
                        pepper_version="p",
                        scopes=["inference"],
                    )
                )
            adapter = await catalog.lock_or_add_adapter(session, line, "pirate")
            for artefact in artefacts:
                version = await catalog.add_version(session, adapter, NewVersion(artefact, artefact, {}, 6))
            await catalog.move_alias(session, adapter, LIVE, version.number)
        await self.list_replicas(line.base_id)
        async with self.db.system_session() as session:
            account = await members.account_of(session, uuid7(), f"{uuid4().hex}@example.com")
            session.add(Member(id=uuid7(), tenant_id=tenant, admin_id=account, role="viewer"))
            position = 1 + int(await session.scalar(select(func.count()).select_from(PoolRule)) or 0)
            session.add(
                PoolRule(base_id=line.base_id, position=position, pool="long", fallback=True, tenant=tenant)
            )
            session.add(
                BillingExport(
                    id=uuid4().hex * 2,
                    tenant_id=tenant,
                    month=date(2026, 1, 1),
                    through_seq=0,
                    closed=False,
                    state="failed",
                    requested_by="admin:x",
                )
            )
        for artefact in artefacts:
            self.put(artefact_path(str(tenant), artefact))
        self.put(f"tenants/{tenant}/exports/2026-01/{uuid4().hex}/data.csv")
        for replica in self.replicas:
            replica.held |= set(artefacts)
        await self.redis.set(TenantKeys(tenant).key("idempotency", "x"), b"sealed")
        await self.redis.set(Shelf(tenant, "cached").entry("y"), b"sealed")
        await self.redis.zadd(TenantKeys(tenant).key("leases"), {"z": 1})
        return artefacts

    async def list_replicas(self, base_id: str) -> None:
        self.base_id = base_id
        urls = [url_of(base_id, n) for n in range(len(self.replicas))]
        async with self.db.system_session() as session:
            await add_listed(session, base_id, urls)

    def put(self, path: str) -> None:
        source = self.root / "source"
        source.write_bytes(b"packed")
        self.store.put_file(source, path)

    async def name_of(self, tenant: TenantId) -> str:
        return (await self.tenants.get(tenant)).name

    async def leave(self, tenant: TenantId) -> Offboarding:
        """Off-boarded, with a grace that is over."""
        wanted = OffboardingIn(confirm=await self.name_of(tenant))
        begun = await self.offboardings.begin(OPERATOR, tenant, wanted)
        await self.let_grace_pass(tenant)
        return begun

    async def let_grace_pass(self, tenant: TenantId) -> None:
        async with self.db.system_session() as session:
            await session.execute(
                update(Offboarding)
                .where(Offboarding.tenant_id == tenant, Offboarding.state == "waiting")
                .values(purge_after=text("now() - interval '1 second'"))
            )

    async def run(self, parts: Sequence[Part] | None = None) -> int:
        return await Purger(self.db, self.parts() if parts is None else parts).run_once()

    async def offboarding(self, tenant: TenantId) -> Offboarding:
        return (await self.offboardings.last(tenant))[0]

    async def row(self, tenant: UUID) -> Tenant:
        return await self.tenants.get(tenant)


@pytest.fixture
def house(db: Database, redis: Redis, tmp_path: Path) -> House:
    return House(db, redis, open_store(f"file://{tmp_path}/store"), tmp_path, [FakeReplica(), FakeReplica()])
