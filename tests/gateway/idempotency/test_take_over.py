"""A request that runs in a dead worker's place, against the reconciler that brings in what that worker
left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from gateway.db import Database
from gateway.idempotency import repository
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.usage.event import TAKEN_OVER, UsageEvent
from gateway.usage.repository import insert_events
from gateway.usage.service import Asked, report
from tests.gateway.control.test_reconcile import Bench
from tests.gateway.usage.test_journal import make_event


@pytest.fixture
def bench(db: Database, tmp_path: Path) -> Bench:
    return Bench(db, tmp_path)


def marker(tenant: TenantId, request: UUID) -> UsageEvent:
    return msgspec.structs.replace(
        make_event(), tenant_id=tenant, request_id=request, attempt=32, outcome=TAKEN_OVER, counted=False
    )


async def take_over(db: Database, tenant: TenantId, request: UUID) -> bool:
    async with db.system_session() as session:
        return await repository.take_over(session, marker(tenant, request))


async def test_what_the_dead_one_left_bills_nothing_once_another_runs(
    bench: Bench, db: Database, tenant: TenantId
) -> None:
    request = uuid7()
    assert not await take_over(db, tenant, request)
    bench.replicas[0].add(tenant, request, 1, outcome="aborted")
    await bench.after_grace()
    assert await bench.rows(request) == {1: ("aborted", 20, 0)}


async def test_what_stands_between_them_is_no_request_that_nobody_could_count(
    db: Database, tenant: TenantId
) -> None:
    await take_over(db, tenant, uuid7())
    assert (await report(db, tenant, Asked())).unknown_requests == 0
    async with db.system_session() as session:
        await insert_events(session, [make_event(tenant_id=tenant, counted=False)])
    assert (await report(db, tenant, Asked())).unknown_requests == 1


async def test_what_is_billed_by_then_is_told(bench: Bench, db: Database, tenant: TenantId) -> None:
    request = uuid7()
    bench.replicas[0].add(tenant, request, 1, outcome="aborted")
    await bench.after_grace()
    assert await bench.rows(request) == {1: ("aborted", 20, 20)}
    assert await take_over(db, tenant, request)


async def test_when_the_second_owner_dies_too_its_attempt_is_billed(
    bench: Bench, db: Database, tenant: TenantId
) -> None:
    request = uuid7()
    await take_over(db, tenant, request)
    for attempt in (1, 33):
        bench.replicas[0].add(tenant, request, attempt)
    await bench.after_grace()
    assert await bench.rows(request) == {1: ("finished", 20, 0), 33: ("finished", 20, 20)}


async def test_both_at_once_never_bill_both(bench: Bench, db: Database, tenant: TenantId) -> None:
    for _ in range(8):
        request = uuid7()
        bench.replicas[0].add(tenant, request, 1, outcome="aborted")
        await bench.reconciler.run_once()
        bench.now += 100
        billed, _ = await asyncio.gather(take_over(db, tenant, request), bench.reconciler.run_once())
        rows = await bench.rows(request)
        assert (rows[1][2] > 0) == billed
