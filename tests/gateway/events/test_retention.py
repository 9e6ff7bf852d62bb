"""Events go with their day, whichever partition they were in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from deploy.local.services import DatabaseUrls
from gateway.config import Settings
from gateway.control.events import Memory
from gateway.db import Database
from gateway.errors import NotFound
from gateway.events import repository, service
from gateway.principal import TenantId
from migrations import async_url
from tests.gateway.events.making import make_event


async def make_partition(database: DatabaseUrls, day: datetime) -> str:
    name = f"request_events_{day:%Y%m%d}"
    low, high = (repository.first_id(moment) for moment in (day, day + timedelta(days=1)))
    engine = create_async_engine(async_url(database.owner))
    async with engine.begin() as owner:
        await owner.execute(
            text(f"CREATE TABLE {name} PARTITION OF request_events FOR VALUES FROM ('{low}') TO ('{high}')")
        )
    await engine.dispose()
    return name


async def exists(db: Database, name: str) -> bool:
    async with db.system_reader() as session:
        return await session.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is not None


async def test_what_is_too_old_goes(
    db: Database, database: DatabaseUrls, settings: Settings, tenant: TenantId
) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    old, kept = today - timedelta(days=8), today - timedelta(days=7)
    parts = [await make_partition(database, old), await make_partition(database, kept)]
    events = [
        make_event(tenant),
        make_event(tenant, ago=timedelta(days=6)),  # in the default partition
        make_event(tenant, ago=datetime.now(UTC) - kept - timedelta(hours=1)),
        make_event(tenant, ago=datetime.now(UTC) - old - timedelta(hours=1)),
        make_event(tenant, ago=timedelta(days=30)),
    ]
    async with db.system_session() as session:
        await repository.add(session, events)
        await repository.add(session, events)  # a batch may be repeated
    await Memory(settings, db).keep_events()
    assert [await exists(db, part) for part in parts] == [False, True]
    for event in events[:3]:
        assert (await service.story(db, tenant, str(event.request_id))).request.id == event.request_id
    for event in events[3:]:
        with pytest.raises(NotFound):
            await service.story(db, tenant, str(event.request_id))
    assert await Memory(settings, db).keep_events() == 0


async def test_a_day_takes_over_what_the_default_partition_caught(db: Database, tenant: TenantId) -> None:
    event = make_event(tenant, ago=timedelta(days=-5, hours=-1))
    async with db.system_session() as session:
        await repository.add(session, [event])
        assert await repository.keep(session, ahead=6, kept=7) > 0
        where = await session.scalar(
            text("SELECT tableoid::regclass::text FROM request_events WHERE request_id = :id"),
            {"id": event.request_id},
        )
    assert where != "request_events_default"
