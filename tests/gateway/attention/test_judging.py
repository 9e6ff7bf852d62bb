"""What is worth a look, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from gateway.attention import judging
from gateway.attention.schemas import Finding, QueueNow
from gateway.models import BudgetRow
from gateway.store_checks.schemas import StoreOut
from tests.gateway.conftest import Operator

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
IDLE = QueueNow(waiting=0, waiting_tokens=0, running=0, places=8, tokens_per_s=None, wait_s=0.0)
BUSY = QueueNow(waiting=90, waiting_tokens=9_000, running=8, places=8, tokens_per_s=900, wait_s=10.0)
WELL = StoreOut(
    kind="folder",
    place="file:///store",
    reachable=True,
    code=None,
    message=None,
    versions_lost=0,
    purges_under_way=0,
    replicas_owing=[],
    last_check=None,
)


def kinds(findings: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.severity) for each in findings]


@pytest.mark.parametrize(
    ("well", "failed", "turned_away", "queue", "wanted"),
    [
        (0, 0, 0, IDLE, []),
        (10, 4, 0, IDLE, []),  # few: it may be chance
        (10_000, 5, 0, IDLE, []),
        (100, 5, 0, IDLE, [("requests_failing", "critical")]),
        (100, 0, 0, BUSY, [("queue_growing", "warning")]),
        (100, 0, 3, IDLE, [("queue_growing", "critical")]),
    ],
)
def test_requests_that_fail_or_wait_long(
    well: int, failed: int, turned_away: int, queue: QueueNow, wanted: list[tuple[str, str]]
) -> None:
    found = SimpleNamespace(well=well, failed=failed, turned_away=turned_away)
    assert kinds(judging.of_requests(found, queue)) == wanted


def replica(**fields: Any) -> Any:
    return SimpleNamespace(
        **{
            "id": uuid4(),
            "url": "http://r:1",
            "health": "ready",
            "state": "up",
            "breaker": "closed",
            "reason": None,
            "in_flight": 3,
            **fields,
        }
    )


def test_replicas_that_take_no_requests() -> None:
    assert kinds(judging.of_replicas([replica()])) == []
    assert kinds(judging.of_replicas([replica(health="down")])) == [
        ("no_replica", "critical"),
        ("replica_down", "critical"),
    ]
    others = [
        replica(health="unfit", reason="other weights"),
        replica(breaker="open"),
        replica(state="draining"),
    ]
    assert kinds(judging.of_replicas([replica(), *others])) == [
        ("replica_unfit", "warning"),
        ("replica_breaker_open", "warning"),
        ("replica_draining", "notice"),
    ]


def test_a_store_that_is_away_or_has_lost_something() -> None:
    assert kinds(judging.of_store(WELL)) == []
    assert kinds(judging.of_store(None)) == [("store_unreachable", "critical")]
    lost = StoreOut(**{name: getattr(WELL, name) for name in WELL.__struct_fields__} | {"versions_lost": 2})
    assert kinds(judging.of_store(lost)) == [("store_lost_versions", "critical")]


def test_usage_that_is_not_complete_or_has_no_price() -> None:
    found = SimpleNamespace(
        complete_until=NOW - timedelta(seconds=20),
        unknown=0,
        unknown_since=None,
        unpriced_tenants=0,
        unpriced_since=None,
    )
    assert kinds(judging.of_ledger(found, NOW)) == []
    found.complete_until, found.unknown, found.unpriced_tenants = NOW - timedelta(minutes=3), 1, 1
    assert [kind for kind, _ in kinds(judging.of_ledger(found, NOW))] == [
        "usage_behind",
        "usage_unknown",
        "usage_unpriced",
    ]


def test_budgets_that_are_nearly_or_wholly_used() -> None:
    tenant = uuid4()

    def row(spent: int, key: str = "") -> tuple[BudgetRow, int, str]:
        budget = BudgetRow(tenant_id=tenant, key_id=key, period="day", amount=Decimal(100), hard=True)
        return budget, spent, "acme"

    found = list(judging.of_budgets([row(79), row(80), row(100, "k1")]))
    assert kinds(found) == [("budget_nearly_used", "notice"), ("budget_used", "warning")]
    assert [each.key_id for each in found] == [None, "k1"]
    assert "refused now" in found[1].message


def test_the_worst_comes_first_then_the_newest() -> None:
    def finding(severity: Any, hours: int) -> Finding:
        since = NOW - timedelta(hours=hours)
        return Finding(kind="proof_late", severity=severity, message="", since=since)

    old, new = finding("notice", 9), finding("notice", 1)
    worst = finding("critical", 20)
    assert judging.ordered([old, new, worst]) == [worst, new, old]


def test_many_of_a_kind_hide_no_other() -> None:
    many = [Finding(kind="replica_down", severity="critical", message=str(number)) for number in range(50)]
    other = Finding(kind="proof_late", severity="warning", message="")
    found = judging.ordered([*many, other])
    assert found == [*many[:20], other]


def test_operators_see_it_whole(client: TestClient[Any], operator: Operator) -> None:
    found = client.get("/api/v1/attention", headers=operator.headers)
    assert found.status_code == 200, found.text
    told = found.json()
    assert set(told) == {"object", "looked_at", "queue", "data"}
    assert told["queue"]["waiting"] == 0
    assert "no_replica" in {each["kind"] for each in told["data"]} or told["queue"]["places"] > 0
