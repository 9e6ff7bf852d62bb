"""A catalog with two replicas that hold what they are told, in folders that a test can look into."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import text, update

from gateway.catalog import stored
from gateway.db import Database
from gateway.models import Replica
from gateway.principal import Principal, Scope, TenantId
from gateway.replicas.driver import Purge, UpstreamFailed
from gateway.replicas.repository import add_listed
from gateway.retirement import repository
from gateway.retirement.job import PurgeJob
from gateway.retirement.purge import Purges
from gateway.retirement.service import Retirement
from gateway.tenants.epochs import Epochs
from tests.gateway.catalog.test_intake import Room, base, other, principal, room, small

__all__ = ["base", "other", "room", "small"]


@dataclass
class FakeReplica:
    """What a purge asks of a replica. `disk` has a file an artefact, as an engine's cache has."""

    disk: Path
    held: set[str] = field(default_factory=set)  # something runs on them
    away: bool = False

    def load(self, artefact: str) -> None:
        self.disk.mkdir(parents=True, exist_ok=True)
        (self.disk / artefact).write_bytes(b"weights")

    @property
    def holds(self) -> set[str]:
        return {file.name for file in self.disk.glob("*")}

    async def purge(self, artefact: str, owner: str) -> Purge:
        if self.away:
            raise UpstreamFailed("connection refused", sent=False)
        if artefact in self.held:
            return Purge.HELD
        (self.disk / artefact).unlink(missing_ok=True)
        return Purge.DONE


@dataclass
class Ward:
    """Where versions come to their end."""

    room: Room
    retirement: Retirement
    job: PurgeJob
    replicas: dict[str, FakeReplica]
    db: Database

    async def who(self, tenant: TenantId) -> Principal:
        made = principal(tenant, await self.epoch(tenant))
        return dataclasses.replace(made, scopes=frozenset(Scope))

    async def epoch(self, tenant: TenantId) -> int:
        async with self.db.system_reader() as session:
            query = text("SELECT epoch FROM tenants WHERE id = :tenant")
            return int(await session.scalar(query, {"tenant": tenant}) or 0)

    async def let_retention_pass(self, tenant: TenantId) -> None:
        past = "UPDATE adapter_versions SET purges_at = now() WHERE tenant_id = :it AND purges_at > now()"
        async with self.db.system_session() as session:
            await session.execute(text(past), {"it": tenant})

    async def stored_by(self, tenant: TenantId) -> tuple[int, int]:
        async with self.db.tenant_reader(tenant) as session:
            versions, num_bytes = (await session.execute(stored.stored_of(tenant))).one()
            return int(versions), int(num_bytes)

    async def states(self, tenant: TenantId, artefact: str) -> dict[str, str]:
        """By replica, how far a purge is."""
        async with self.db.system_reader() as session:
            rows = await repository.replica_states(session, tenant, [artefact])
        return {row.url: row.state for row in rows}

    async def owing(self) -> set[str]:
        async with self.db.system_reader() as session:
            return await repository.owing(session) & set(self.replicas)

    async def remove(self, url: str, *, removed: bool = True) -> None:
        async with self.db.system_session() as session:
            moment: Any = text("now()") if removed else None
            await session.execute(update(Replica).where(Replica.url == url).values(removed_at=moment))


@pytest.fixture
async def ward(room: Room, db: Database, redis: Redis, tmp_path: Path) -> Ward:
    replicas = {f"http://{tmp_path.name}.{n}": FakeReplica(tmp_path / f"replica-{n}") for n in (1, 2)}
    async with db.system_session() as session:
        await session.execute(text("DELETE FROM replicas WHERE base_id = :it"), {"it": room.base.base_id})
        await add_listed(session, room.base.base_id, list(replicas))
    drivers: Any = replicas
    purges = Purges(db, room.store, lambda: drivers, room.base.base_id)
    retirement = Retirement(db, Epochs(redis), room.store, purges, room.base.base_id)

    async def nothing() -> None:
        return None

    return Ward(room, retirement, PurgeJob(db, purges, lambda: drivers, nothing), replicas, db)
