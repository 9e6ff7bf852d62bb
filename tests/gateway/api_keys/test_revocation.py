"""How soon each worker hears of a change, by each of the ways by itself; and what happens while the database
is away."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from deploy.local.services import DatabaseUrls, EmbeddedPostgres
from gateway.api_keys import revocation
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.grants import BY_ROLE
from gateway.api_keys.revocation import Revocation
from gateway.api_keys.schemas import KeyCreate
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import Actor
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import Unauthenticated, Unavailable
from gateway.ids import uuid7
from gateway.models import Tenant
from gateway.principal import Role, TenantId
from gateway.redis import TenantKeys
from gateway.tenants.epochs import Epochs
from migrations import async_url

ACTOR = Actor("admin:tests")
ALL = BY_ROLE[Role.OPERATOR]
SLOW = CacheLimits(entries=100, age_s=3600)  # nothing ages out during a test


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def keys(db: Database, peppers: Peppers, redis: Redis) -> ApiKeys:
    return ApiKeys(db, peppers, Epochs(redis))


@pytest.fixture
def worker(db: Database, peppers: Peppers, redis: Redis) -> Authenticator:
    return Authenticator(db, peppers, Epochs(redis), SLOW)


async def made(keys: ApiKeys, tenant: TenantId) -> tuple[str, str]:
    key, secret = await keys.create(ACTOR, tenant, KeyCreate(name="test"), within=ALL)
    return key.key_id, f"Bearer {secret.text}"


async def until(happened: Callable[[], bool], within_s: float = 10.0) -> float:
    """Seconds that it took."""
    began = monotonic()
    while not happened():
        assert monotonic() - began < within_s
        await asyncio.sleep(0.005)
    return monotonic() - began


@asynccontextmanager
async def listening(database: DatabaseUrls, db: Database, worker: Authenticator) -> AsyncIterator[Revocation]:
    revoked = Revocation(database.app, db, worker)
    async with revoked.running():
        await asyncio.wait_for(revoked.listening.wait(), 10)
        yield revoked


async def _cut(database: DatabaseUrls) -> None:
    """Ends every connection that listens, as a failing network or server would."""
    engine = create_async_engine(async_url(database.app))
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid() AND usename = current_user"
            )
        )
    await engine.dispose()


async def test_a_notification_alone_is_enough(
    database: DatabaseUrls,
    db: Database,
    keys: ApiKeys,
    worker: Authenticator,
    tenant: TenantId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revocation, "SWEEP_S", 3600.0)
    key_id, bearer = await made(keys, tenant)
    await worker.principal(bearer)
    async with listening(database, db, worker):
        await keys.revoke(ACTOR, tenant, key_id, within=ALL)
        await until(lambda: tenant not in worker.tenants())
    with pytest.raises(Unauthenticated):
        await worker.principal(bearer)


async def test_a_sweep_alone_is_enough(
    db: Database, keys: ApiKeys, worker: Authenticator, redis: Redis, tenant: TenantId, database: DatabaseUrls
) -> None:
    """Redis lost what was published, and nobody listens."""
    key_id, bearer = await made(keys, tenant)
    await worker.principal(bearer)
    sweeping = Revocation(database.app, db, worker)
    await sweeping.sweep()
    assert tenant in worker.tenants()
    await keys.revoke(ACTOR, tenant, key_id, within=ALL)
    await redis.delete(TenantKeys(tenant).epoch)
    assert (await worker.principal(bearer)).key_id == key_id  # not heard of yet
    await sweeping.sweep()
    with pytest.raises(Unauthenticated):
        await worker.principal(bearer)
    assert revocation.SWEEP_S <= 1.0  # documented: within two seconds


async def test_a_cut_listener_is_no_loss_and_comes_back(
    database: DatabaseUrls,
    db: Database,
    keys: ApiKeys,
    worker: Authenticator,
    tenant: TenantId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revocation, "RECONNECT_S", 0.05)
    async with listening(database, db, worker) as revoked:
        await _cut(database)
        await until(lambda: not revoked.listening.is_set())
        key_id, bearer = await made(keys, tenant)
        await worker.principal(bearer)
        await keys.revoke(ACTOR, tenant, key_id, within=ALL)
        await until(lambda: tenant not in worker.tenants())  # by the sweep, if not by the next listener
        with pytest.raises(Unauthenticated):
            await worker.principal(bearer)
        await until(revoked.listening.is_set)


async def test_the_next_request_hears_it_from_redis_by_itself(
    keys: ApiKeys, worker: Authenticator, tenant: TenantId
) -> None:
    key_id, bearer = await made(keys, tenant)
    await worker.fresh_principal(bearer)
    await keys.revoke(ACTOR, tenant, key_id, within=ALL)
    with pytest.raises(Unauthenticated):
        await worker.fresh_principal(bearer)


async def test_older_news_drops_nothing(keys: ApiKeys, worker: Authenticator, tenant: TenantId) -> None:
    _, bearer = await made(keys, tenant)
    epoch = (await worker.principal(bearer)).epoch
    assert not worker.moved(tenant, epoch)
    assert not worker.moved(tenant, epoch - 1)
    assert tenant in worker.tenants()
    assert worker.moved(tenant, epoch + 1)
    assert tenant not in worker.tenants()


async def test_known_keys_go_on_while_the_database_is_away_and_unknown_ones_are_told_to_wait(
    peppers: Peppers, redis: Redis
) -> None:
    with tempfile.TemporaryDirectory(prefix="motet-outage-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder))  # of its own, since it is stopped
        urls = await asyncio.to_thread(server.start)
        db = Database(urls.app, urls.system)
        try:
            await migrations.migrate(urls.owner)
            await _through_an_outage(server, db, peppers, redis, Clock())
        finally:
            await db.close()
            await asyncio.to_thread(server.stop)


async def _through_an_outage(
    server: EmbeddedPostgres, db: Database, peppers: Peppers, redis: Redis, clock: Clock
) -> None:
    epochs = Epochs(redis)
    limits = CacheLimits(entries=100, age_s=10.0, stale_s=300.0)
    worker = Authenticator(db, peppers, epochs, limits, clock)
    keys = ApiKeys(db, peppers, epochs)
    first, second = await _tenant(db), await _tenant(db)
    _, known = await made(keys, first)
    _, touched = await made(keys, second)
    _, unknown = await made(keys, first)
    for bearer in (known, touched):
        await worker.principal(bearer)
    await asyncio.to_thread(server.stop)

    clock.now += 60.0  # long past the age of a proof
    for _ in range(3):
        assert (await worker.fresh_principal(known)).tenant == first
    for bearer in (unknown, f"Bearer mt_{'a' * 12}_{'a' * 52}"):
        with pytest.raises(Unavailable) as caught:
            await worker.principal(bearer)
        assert "retry-after" in caught.value.headers
    await epochs.publish(second, 99)  # something of this tenant changed: what is known of it is not true
    with pytest.raises(Unavailable):
        await worker.fresh_principal(touched)

    clock.now += 239.0  # 299 s since the database proved it
    assert (await worker.principal(known)).tenant == first
    clock.now += 1.0
    with pytest.raises(Unavailable):
        await worker.principal(known)


async def _tenant(db: Database) -> TenantId:
    tenant = Tenant(id=uuid7(), name=f"t-{uuid4().hex[:12]}", salt="s")
    async with db.system_session() as session:
        session.add(tenant)
    return TenantId(tenant.id)


async def test_known_keys_are_not_held_up_while_another_request_asks(
    db: Database, keys: ApiKeys, redis: Redis, peppers: Peppers, tenant: TenantId
) -> None:
    clock = Clock()
    worker = Authenticator(db, peppers, Epochs(redis), CacheLimits(100, 10.0, 300.0), clock)
    _, bearer = await made(keys, tenant)
    await worker.principal(bearer)
    clock.now += 60.0
    asking: list[Awaitable[object]] = [worker.principal(bearer) for _ in range(20)]
    assert len({str(found) for found in await asyncio.gather(*asking)}) == 1
