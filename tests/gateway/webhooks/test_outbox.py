"""Events are published once, with what they tell of, and by nobody for another tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from gateway.db import Database
from gateway.models import WebhookEvent
from gateway.principal import TenantId
from gateway.webhooks.outbox import publish

KIND = "budget.threshold"


async def num_events(db: Database, tenant: TenantId) -> int:
    async with db.system_reader() as session:
        found = select(func.count()).select_from(WebhookEvent).where(WebhookEvent.tenant_id == tenant)
        return (await session.scalars(found)).one()


async def test_a_fact_is_published_once_by_whoever_is_first(db: Database, tenant: TenantId) -> None:
    async def by_system() -> None:
        async with db.system_session() as session:
            await publish(session, tenant, KIND, {"percent": 80}, once="b:2026-11:80")

    async def by_tenant() -> None:
        async with db.tenant_session(tenant) as session:
            await publish(session, tenant, KIND, {"percent": 80}, once="b:2026-11:80")

    await asyncio.gather(by_system(), by_tenant(), by_system(), by_tenant())
    assert await num_events(db, tenant) == 1


async def test_each_tenant_has_names_of_its_own(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    for tenant in (mine, theirs):
        async with db.system_session() as session:
            await publish(session, tenant, KIND, {}, once="same")
    assert (await num_events(db, mine), await num_events(db, theirs)) == (1, 1)


async def test_what_did_not_happen_is_not_told(db: Database, tenant: TenantId) -> None:
    async def change() -> None:
        async with db.tenant_session(tenant) as session:
            await publish(session, tenant, KIND, {}, once="once")
            raise RuntimeError("the change failed")

    with pytest.raises(RuntimeError, match="the change failed"):
        await change()
    assert await num_events(db, tenant) == 0


async def test_no_session_publishes_for_another_tenant(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    with pytest.raises(DBAPIError, match="row-level security"):
        async with db.tenant_session(mine) as session:
            await publish(session, theirs, KIND, {}, once="once")
    assert await num_events(db, theirs) == 0


async def test_an_unknown_kind_is_a_fault_of_the_caller(db: Database, tenant: TenantId) -> None:
    with pytest.raises(ValueError, match="is not a valid EventKind"):
        async with db.system_session() as session:
            await publish(session, tenant, "no.such", {}, once="once")
