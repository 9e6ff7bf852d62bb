"""Figures in the database: written again and again, summed up to hours, told in steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.testing import TestClient
from sqlalchemy import text

from gateway.config import Settings
from gateway.control.events import Memory
from gateway.db import Database
from gateway.errors import BadRequest
from gateway.principal import TenantId
from gateway.traffic import repository
from gateway.traffic.histograms import bucket_of
from gateway.traffic.minute import OTHER, Cell, MinuteRow
from gateway.traffic.repository import Look
from gateway.traffic.service import By, look_of, metrics
from gateway.traffic.tally import OLDEST_MINUTES, Tally
from tests.gateway.conftest import Operator
from tests.gateway.events.test_routes import new_key

NOW = datetime(2026, 6, 15, 12, 0, 30, tzinfo=UTC)
MINUTE = int(NOW.timestamp() // 60)


def cell(served: int, ms: float) -> Cell:
    made = Cell()
    made.served, made.prompt_tokens = served, 10 * served
    made.total[bucket_of(ms)] = made.queue[bucket_of(ms / 2)] = served
    return made


def row(tenant: UUID, at: datetime, adapter: str, served: int, ms: float, source: UUID, n: int) -> MinuteRow:
    return cell(served, ms).row(tenant, at.replace(second=0, microsecond=0), adapter, source, n)


async def put(db: Database, *rows: MinuteRow) -> None:
    async with db.system_session() as session:
        await repository.put(session, rows)


def look(tenant: UUID | None, by: str = "all", *, now: datetime = NOW, step_s: int = 60) -> Look:
    end = datetime.fromtimestamp((now.timestamp() // step_s + 1) * step_s, UTC)
    return Look(start=end - timedelta(hours=6), end=end, step_s=step_s, by=by, most_series=2, tenant=tenant)


async def test_a_cell_that_is_written_again_counts_once(db: Database, tenant: TenantId) -> None:
    source = uuid4()
    await put(db, row(tenant, NOW, "pirate", 2, 10, source, 7))
    await put(db, row(tenant, NOW, "pirate", 3, 10, source, 8))
    await put(db, row(tenant, NOW, "pirate", 2, 10, source, 7))  # late, of a statement that timed out
    await put(db, row(tenant, NOW, "pirate", 4, 10, uuid4(), 1))  # another worker
    found = await metrics(db, look(tenant))
    (series,) = found.data
    assert (series.key, series.total.served, series.total.prompt_tokens) == ("all", 7, 70)
    assert series.total.total_ms.count == 7
    assert series.total.total_ms.p50 == pytest.approx(10, rel=0.0906)
    assert [point.figures.requests for point in series.points] == [7]


async def test_series_by_adapter_are_the_largest_and_the_rest(db: Database, tenant: TenantId) -> None:
    for number, adapter in enumerate(("a", "b", "c", "d")):
        await put(db, row(tenant, NOW, adapter, number + 1, 10, uuid4(), 1))
    found = await metrics(db, look(tenant, "adapter"))
    assert {series.key: series.total.served for series in found.data} == {"d": 4, "c": 3, OTHER: 3}


async def test_hours_hold_what_their_minutes_held(db: Database, settings: Settings, tenant: TenantId) -> None:
    old = (datetime.now(UTC) - timedelta(days=3)).replace(minute=0)
    rows = [row(tenant, old + timedelta(minutes=n), "pirate", n + 1, 5 * 2**n, uuid4(), 1) for n in range(8)]
    await put(db, *rows)
    wanted = look(tenant, now=old + timedelta(hours=2), step_s=3600)
    before = await metrics(db, wanted)
    memory = Memory(settings, db)
    while await memory.coarsen():
        pass
    async with db.tenant_reader(tenant) as session:
        spans = [span for (span,) in await session.execute(text("SELECT span_s FROM request_minutes"))]
    assert spans == [3600]
    assert await metrics(db, wanted) == before
    await put(db, row(tenant, old + timedelta(minutes=50), "pirate", 100, 10, uuid4(), 1))  # late
    assert await memory.coarsen() == 1
    after = await metrics(db, wanted)
    assert after.data[0].total.served == before.data[0].total.served + 100
    await put(db, row(tenant, old - timedelta(days=40), "pirate", 1, 10, uuid4(), 1))
    assert await memory.coarsen() >= 1
    async with db.tenant_reader(tenant) as session:
        assert await session.scalar(text("SELECT count(*) FROM request_minutes")) == 1


Op = tuple[str, int]


@given(
    ops=st.lists(
        st.tuples(st.sampled_from(["count", "write", "fail", "lose"]), st.integers(0, 2)), max_size=60
    )
)
def test_whatever_is_written_lost_or_repeated_counts_once(ops: list[Op]) -> None:
    """`lose`: it was written, and the answer did not come."""
    tally, table, tenant = Tally(uuid4()), dict[tuple[datetime, str], MinuteRow](), uuid4()
    counted = 0
    for op, number in [*ops, ("write", 0)]:
        if op == "count":
            found = tally.cell(MINUTE + number, tenant, "pirate")
            assert found is not None
            found.served += 1
            counted += 1
            continue
        keys, rows = tally.changed(100)
        if op != "fail":
            for each in rows:
                kept = table.get((each.at, each.adapter))
                if kept is None or kept.sequence < each.sequence:
                    table[each.at, each.adapter] = each
        if op in ("fail", "lose"):
            tally.not_written(keys)
    assert sum(each.served for each in table.values()) == counted


def test_memory_is_bounded_and_what_is_old_goes() -> None:
    tally, tenant = Tally(uuid4(), most_cells=2), uuid4()
    for adapter in ("a", "b", "c", "d"):
        found = tally.cell(MINUTE, tenant, adapter)
        assert found is not None
        found.served += 1
    assert {each.adapter: each.served for each in tally.changed(9)[1]} == {"a": 1, "b": 1, OTHER: 2}
    for _ in range(5):
        tally.cell(MINUTE, uuid4(), "a")
    assert (len(tally), tally.lost) == (4, 4)
    assert tally.forget((MINUTE + 2) * 60.0) == 0
    assert len(tally) == 1  # not written yet
    assert tally.forget((MINUTE + OLDEST_MINUTES + 1) * 60.0) == 1
    assert len(tally) == 0


@pytest.mark.parametrize(
    ("window", "step", "by", "param"),
    [
        ("1h", "90s", None, "step"),
        ("1h", "2h", None, "step"),
        ("40h", "1m", None, "step"),
        ("10h", "1m", "adapter", "step"),
        ("400d", None, None, "window"),
    ],
)
def test_a_window_that_is_too_fine_is_refused(window: str, step: str | None, by: By, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        look_of(window, step, by, tenant=None, minutes_days=2, now=NOW)
    assert refused.value.param == param


def test_where_only_hours_are_kept_steps_are_hours() -> None:
    fine = look_of("1h", None, None, tenant=None, minutes_days=2, now=NOW)
    assert (fine.step_s, fine.end, fine.end - fine.start) == (
        60,
        NOW.replace(minute=1, second=0),
        timedelta(hours=1),
    )
    coarse = look_of("7d", "90m", None, tenant=None, minutes_days=2, now=NOW)
    assert coarse.step_s == 7_200
    assert coarse.start.minute == 0


async def test_who_sees_which_figures(
    client: TestClient[Any],
    operator: Operator,
    db: Database,
    new_tenant: Callable[[], Awaitable[TenantId]],
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    now = datetime.now(UTC)
    await put(db, row(mine, now, "pirate", 2, 10, uuid4(), 1), row(theirs, now, "pirate", 5, 10, uuid4(), 1))
    headers = new_key(client, operator, mine, "usage:read")
    own = client.get("/v1/metrics/requests?window=10m&by=adapter", headers=headers).json()
    assert [(one["key"], one["total"]["served"]) for one in own["data"]] == [("pirate", 2)]
    assert own["error_factor"] == pytest.approx(1.0905)
    seen = client.get(f"/api/v1/tenants/{theirs}/metrics/requests", headers=operator.headers).json()
    assert seen["data"][0]["total"]["requests"] == 5
    everyone = client.get("/api/v1/metrics/requests?by=tenant&window=10m", headers=operator.headers).json()
    found = {one["key"]: one["total"]["served"] for one in everyone["data"]}
    assert (found[str(mine)], found[str(theirs)]) == (2, 5)
    refused = client.get("/v1/metrics/requests?by=tenant", headers=headers)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "by")
