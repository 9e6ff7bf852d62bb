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
from gateway.traffic.minute import ALL, OTHER, PLATFORM, Cell, Measured, MinuteRow
from gateway.traffic.repository import Look
from gateway.traffic.service import Asked, By, Kept, look_of, metrics
from gateway.traffic.tally import OLDEST_MINUTES, Tally
from tests.gateway.conftest import Operator
from tests.gateway.events.test_routes import new_key

KEPT = Kept(6 * 3600, 7 * 24 * 3600)
NOW = datetime(2026, 6, 15, 12, 0, 30, tzinfo=UTC)
MINUTE = int(NOW.timestamp() // 60)


def served(ms: float = 10) -> Measured:
    return Measured(0, (None, None, bucket_of(ms / 2), bucket_of(ms)), (10, 0, 0))


def row(tenant: UUID, at: datetime, adapter: str, number: int, ms: float, source: UUID, n: int) -> MinuteRow:
    cell = Cell(source)
    for _ in range(number):
        cell.add(served(ms))
    return cell.row(tenant, at.replace(second=0, microsecond=0), adapter, n)


async def put(db: Database, *rows: MinuteRow) -> None:
    async with db.system_session() as session:
        await repository.put(session, rows)


def look(tenant: UUID | None, by: str = "all", *, now: datetime = NOW, step_s: int = 60) -> Look:
    end = datetime.fromtimestamp((now.timestamp() // step_s + 1) * step_s, UTC)
    return Look(start=end - timedelta(hours=6), end=end, step_s=step_s, by=by, most_series=2, tenant=tenant)


async def test_a_cell_that_is_written_again_counts_once(db: Database, tenant: TenantId) -> None:
    source = uuid4()
    await put(db, row(tenant, NOW, ALL, 2, 10, source, 7))
    await put(db, row(tenant, NOW, ALL, 3, 10, source, 8))
    await put(db, row(tenant, NOW, ALL, 2, 10, source, 7))  # late, of a statement that timed out
    await put(db, row(tenant, NOW, ALL, 4, 10, uuid4(), 1))  # another worker
    found = await metrics(db, look(tenant))
    (series,) = found.data
    assert (series.key, series.total.served, series.total.prompt_tokens) == ("all", 7, 70)
    assert series.total.total_ms.count == 7
    assert series.total.total_ms.p50 == pytest.approx(10, rel=0.0906)
    assert [point.figures.requests for point in series.points] == [7]


async def test_series_by_adapter_are_the_largest_and_the_rest(db: Database, tenant: TenantId) -> None:
    for number, adapter in enumerate(("a", "b", "c", "d")):
        for name in (adapter, ALL):
            await put(db, row(tenant, NOW, name, number + 1, 10 * 3**number, uuid4(), 1))
    found = await metrics(db, look(tenant, "adapter"))
    assert {series.key: series.total.served for series in found.data} == {"d": 4, "c": 3, OTHER: 3}
    rest = next(series.total for series in found.data if series.key == OTHER)
    assert (rest.total_ms.count, rest.prompt_tokens) == (3, 30)
    assert rest.total_ms.p50 == pytest.approx(30, rel=0.0906)


async def test_adapters_of_one_name_are_told_apart_by_their_tenants(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    one, other = await new_tenant(), await new_tenant()
    for tenant, number in ((one, 2), (other, 3)):
        for name in ("pirate", ALL):
            await put(db, row(tenant, NOW + timedelta(days=900), name, number, 10, uuid4(), 1))
    found = await metrics(db, look(None, "adapter", now=NOW + timedelta(days=900)))
    assert [(each.key, each.tenant, each.total.served) for each in found.data] == [
        ("pirate", other, 3),
        ("pirate", one, 2),
    ]
    assert all(each.tenant_name for each in found.data)


async def test_the_platforms_figures_are_a_row_of_their_own_that_no_tenant_sees(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    """Of tenants beyond the largest no row is read, and yet they are in what all come to."""
    tally, now = Tally(uuid4()), NOW + timedelta(days=950)
    tenants = [await new_tenant() for _ in range(4)]
    for number, tenant in enumerate(tenants, 1):
        for _ in range(number):
            tally.add(int(now.timestamp() // 60), tenant, "pirate", served())
    await put(db, *tally.changed(99)[1])
    (everyone,) = (await metrics(db, look(None, now=now))).data
    assert (everyone.key, everyone.total.served, everyone.total.total_ms.count) == ("all", 10, 10)
    for by in ("tenant", "adapter"):
        found = await metrics(db, look(None, by, now=now))
        served_of = {each.tenant: each.total.served for each in found.data}
        assert served_of == {tenants[3]: 4, tenants[2]: 3, None: 3}
    async with db.tenant_reader(tenants[0]) as session:
        seen = await session.execute(text("SELECT DISTINCT tenant_id FROM request_minutes"))
        assert [each for (each,) in seen] == [tenants[0]]


@pytest.mark.parametrize(("days", "wanted_spans"), [(1, [900, 900, 900]), (8, [3600])])
async def test_hours_hold_what_their_minutes_held(
    db: Database, settings: Settings, tenant: TenantId, days: int, wanted_spans: list[int]
) -> None:
    old = (datetime.now(UTC) - timedelta(days=days)).replace(minute=0)
    rows = [row(tenant, old + timedelta(minutes=5 * n), ALL, n + 1, 5 * 2**n, uuid4(), 1) for n in range(8)]
    await put(db, *rows)
    wanted = look(tenant, now=old + timedelta(hours=2), step_s=3600)
    before = await metrics(db, wanted)
    memory = Memory(settings, db)
    while await memory.coarsen():
        pass
    async with db.tenant_reader(tenant) as session:
        spans = [span for (span,) in await session.execute(text("SELECT span_s FROM request_minutes"))]
    assert spans == wanted_spans
    assert await metrics(db, wanted) == before
    await put(db, row(tenant, old + timedelta(minutes=50), ALL, 100, 10, uuid4(), 1))  # late
    assert await memory.coarsen() >= 1
    after = await metrics(db, wanted)
    assert after.data[0].total.served == before.data[0].total.served + 100
    await put(db, row(tenant, old - timedelta(days=40), ALL, 1, 10, uuid4(), 1))
    assert await memory.coarsen() >= 1
    async with db.tenant_reader(tenant) as session:
        assert await session.scalar(text("SELECT sum(served) FROM request_minutes")) == 136


Op = tuple[str, int]


@given(
    ops=st.lists(
        st.tuples(st.sampled_from(["count", "write", "fail", "lose", "later"]), st.integers(0, 3)),
        max_size=60,
    )
)
def test_whatever_is_written_lost_or_repeated_counts_once(ops: list[Op]) -> None:
    """`lose`: it was written, and the answer did not come."""
    tally, table, tenant = Tally(uuid4()), dict[tuple[UUID, datetime, str, UUID], MinuteRow](), uuid4()
    counted = 0
    for op, number in [*ops, ("write", 0)]:
        if op == "count":
            tally.add(MINUTE + number, tenant, "pirate", served())
            counted += 1
            continue
        if op == "later":  # a minute that is over leaves the memory, and requests come late for it
            tally.forget((MINUTE + number) * 60.0)
            continue
        keys, rows = tally.changed(100)
        if op != "fail":
            for each in rows:
                key = (each.tenant_id, each.at, each.adapter, each.source)
                if key not in table or table[key].sequence < each.sequence:
                    table[key] = each
        if op in ("fail", "lose"):
            tally.not_written(keys)
    for series in ((tenant, "pirate"), (tenant, ALL), (PLATFORM, ALL)):
        found = [each.served for each in table.values() if (each.tenant_id, each.adapter) == series]
        assert sum(found) == counted


def test_memory_is_bounded_and_what_is_old_goes() -> None:
    tally, tenant = Tally(uuid4(), most_cells=2), uuid4()
    for adapter in ("a", "b", "c", "d"):
        tally.add(MINUTE, tenant, adapter, served())
    cells = {(each.tenant_id, each.adapter): each.served for each in tally.changed(9)[1]}
    assert cells == {(tenant, "a"): 1, (tenant, ALL): 4, (tenant, OTHER): 3, (PLATFORM, ALL): 4}
    tally.add(MINUTE, uuid4(), "a", served())
    assert (len(tally), tally.lost) == (4, 1)  # the platform's figures have it
    assert tally.forget((MINUTE + 2) * 60.0) == 0
    assert len(tally) == 1  # not written yet
    assert tally.forget((MINUTE + OLDEST_MINUTES + 2) * 60.0) == 1
    assert len(tally) == 0


@pytest.mark.parametrize(
    ("window", "step", "by", "param"),
    [
        ("1h", "90s", None, "step"),
        ("1h", "2h", None, "step"),
        ("365d", "1h", None, "step"),
        ("4h", "1m", "adapter", "step"),
        ("400d", None, None, "window"),
    ],
)
def test_a_window_that_is_too_fine_is_refused(window: str, step: str | None, by: By, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        look_of(Asked(window=window, step=step, by=by), tenant=None, kept=KEPT, now=NOW)
    assert refused.value.param == param


def test_where_only_hours_are_kept_steps_are_hours() -> None:
    fine = look_of(Asked(), tenant=None, kept=KEPT, now=NOW)
    assert (fine.step_s, fine.end, fine.end - fine.start) == (
        60,
        NOW.replace(minute=1, second=0),
        timedelta(hours=1),
    )
    coarse = look_of(Asked(window="7d", step="90m"), tenant=None, kept=KEPT, now=NOW)
    assert coarse.step_s == 7_200
    assert coarse.start.minute == 0
    assert look_of(Asked(window="2d", step="5m"), tenant=None, kept=KEPT, now=NOW).step_s == 900


def test_a_window_that_ended_is_told_from_its_first_to_its_last_moment() -> None:
    day = datetime(2026, 6, 10, tzinfo=UTC)
    asked = Asked(since=day, until=day + timedelta(days=1), step="3h")
    found = look_of(asked, tenant=None, kept=KEPT, now=NOW)
    assert (found.start, found.end, found.step_s) == (day, day + timedelta(days=1), 10_800)
    begun = look_of(Asked(since=NOW - timedelta(minutes=90)), tenant=None, kept=KEPT, now=NOW)
    assert begun.start <= NOW - timedelta(minutes=90)
    assert NOW <= begun.end <= NOW + timedelta(minutes=1)
    for wrong in (Asked(since=NOW + timedelta(days=1)), Asked(until=NOW), Asked(since=day, until=day)):
        with pytest.raises(BadRequest):
            look_of(wrong, tenant=None, kept=KEPT, now=NOW)


async def test_who_sees_which_figures(
    client: TestClient[Any],
    operator: Operator,
    db: Database,
    new_tenant: Callable[[], Awaitable[TenantId]],
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    now = datetime.now(UTC)
    for tenant, number in ((mine, 2), (theirs, 5)):
        await put(db, *(row(tenant, now, adapter, number, 10, uuid4(), 1) for adapter in ("pirate", ALL)))
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
