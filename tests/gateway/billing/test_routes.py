"""Billing over HTTP: operators set prices and re-rate, tenants see what is theirs."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from adapters.store import open_store
from gateway.app import create_app
from gateway.billing.exports.maker import Maker
from gateway.billing.months import bucket_of
from gateway.config import Settings
from gateway.principal import TenantId
from tests.gateway.billing.conftest import NOON, Bench, usage
from tests.gateway.conftest import Operator
from tests.gateway.usage.test_routes import new_key

Client = TestClient[Any]
PRICE = {
    "input": "0.15",
    "cached_input": "0.075",
    "output": "0.6",
    "answer_input": "0.01",
    "answer_output": "0.05",
}
ROWS = [{"model": "base", **PRICE}, {"model": "any_adapter", **PRICE}]
PAST = {"effective_from": "2025-01-01T00:00:00Z", "retroactive": True, "prices": ROWS}


@pytest.fixture
def client(settings: Settings, demo_model_dir: Path) -> Iterator[Client]:
    app = create_app(settings.model_copy(update={"base_model": str(demo_model_dir)}))
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


async def test_prices_from_their_making_to_an_export(
    client: Client,
    operator: Operator,
    bench: Bench,
    settings: Settings,
    new_tenant: Callable[[], Awaitable[TenantId]],
    tmp_path: Path,
) -> None:
    ours, other = await new_tenant(), await new_tenant()
    mine = new_key(client, operator, ours, "usage:read")
    admin = operator.headers
    made = client.post("/api/v1/price-books", json=PAST, headers=admin)
    assert made.status_code == 201, made.text
    assert made.json()["book"]["version"] == 1
    assert made.json()["prices"][0]["cached_input"] == "0.075000"
    assert client.get("/api/v1/price-books/1", headers=admin).json() == made.json()
    await bench.add(usage(ours), usage(other))
    await bench.charging.run_once()
    shown = client.get("/v1/usage?first=2026-01-01&last=2026-01-31&zone=Asia/Kolkata", headers=mine).json()
    assert (shown["requests"], shown["amount"], shown["currency"]) == (1, "0.000018", "USD")
    assert (shown["start"], shown["end"]) == ("2025-12-31T18:30:00Z", "2026-01-31T18:30:00Z")
    statement = client.get("/v1/billing/statement?month=2026-01", headers=mine).json()
    assert {line["meter"]: line["amount"] for line in statement["lines"]} == {
        "Input Tokens": "0.000009",
        "Cache Read Input Tokens": "0.000003",
        "Output Tokens": "0.000006",
    }
    assert (statement["exact"], statement["total"], statement["status"]) == ("0.000018", "0.00", "open")
    seen = client.get(f"/api/v1/tenants/{ours}/billing/statement?month=2026-01", headers=admin).json()
    assert seen["lines"] == statement["lines"]

    asked = client.post("/v1/billing/exports", json={"month": "2026-01"}, headers=mine)
    assert (asked.status_code, asked.json()["state"], asked.json()["can"]) == (202, "waiting", [])
    place = f"/v1/billing/exports/{asked.json()['id']}"
    early = client.get(f"{place}/file", headers=mine)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "export_not_ready")
    maker = Maker(bench.db, open_store(settings.store_url), tmp_path / "work", settings.billing_issuer)
    assert await maker.run_once() == 1
    done = client.get(place, headers=mine).json()
    assert (done["state"], done["can"], done["billed"]) == ("done", ["download"], {"USD": "0.000018"})
    assert [(each["kind"], each["rows"]) for each in done["files"]] == [("csv", 3), ("parquet", 3)]
    file = client.get(f"{place}/file?kind=csv", headers=mine)
    told = done["files"][0]
    assert (told["bytes"], told["sha256"]) == (len(file.content), hashlib.sha256(file.content).hexdigest())
    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    assert {row["SubAccountId"] for row in csv.DictReader(io.StringIO(file.text))} == {str(ours)}
    assert client.get(f"{place}/file?kind=manifest", headers=mine).json()["rows"] == 3
    assert list((settings.home / "downloads").iterdir()) == []
    theirs = new_key(client, operator, other, "usage:read")
    for path in (place, f"{place}/file"):
        assert client.get(path, headers=theirs).status_code == 404
    assert client.get("/v1/billing/exports", headers=theirs).json()["data"] == []
    listed = client.get("/v1/billing/exports", headers=mine).json()["data"]
    assert [each["id"] for each in listed] == [asked.json()["id"]]
    whole = client.post("/api/v1/billing/exports", json={"month": "2026-01"}, headers=admin).json()
    assert (whole["tenant"], whole["id"] == asked.json()["id"]) == (None, False)
    assert client.get(f"/v1/billing/exports/{whole['id']}", headers=mine).status_code == 404


def _without(row: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in row.items() if key != name}


SOON = bucket_of(datetime.now(UTC) + timedelta(days=1)).isoformat()
REFUSED: list[tuple[dict[str, Any], str, int]] = [
    ({**PAST, "retroactive": False}, "effective_from", 400),
    ({**PAST, "effective_from": "2026-12-01T00:01:00Z"}, "effective_from", 400),
    ({**PAST, "effective_from": "0001-01-01T00:00:00+23:00"}, "effective_from", 400),
    ({**PAST, "prices": ROWS[:1] * 2}, "prices[1]", 400),
    ({**PAST, "prices": [ROWS[0], {**ROWS[0], "service_class": "batch"}]}, "prices", 400),
    ({**PAST, "prices": [*ROWS, {"model": "adapter", **PRICE}]}, "prices[2]", 400),
    ({**PAST, "prices": [*ROWS, {"model": "base", "owner": str(uuid4()), **PRICE}]}, "prices[2]", 400),
    ({**PAST, "prices": [{**ROWS[0], "input": "0.1234567"}, ROWS[1]]}, "prices[0].input", 400),
    ({**PAST, "prices": [{**ROWS[0], "input": "9999999"}, ROWS[1]]}, "prices[0]", 400),
    ({**PAST, "prices": [{**ROWS[0], "input": 0.15}, ROWS[1]]}, "prices[0].input", 400),
    ({**PAST, "prices": [_without(ROWS[0], "output"), ROWS[1]]}, "prices[0]", 400),
    ({**PAST, "currency": "EUR"}, "currency", 409),
]


async def test_what_is_no_version_is_refused_by_its_field(client: Client, operator: Operator) -> None:
    assert client.post("/api/v1/price-books", json=PAST, headers=operator.headers).status_code == 201
    for body, param, status in REFUSED:
        answer = client.post("/api/v1/price-books", json=body, headers=operator.headers)
        assert (answer.status_code, answer.json()["param"]) == (status, param), answer.text
    soon = {"effective_from": SOON, "prices": ROWS, "note": "next"}
    assert client.post("/api/v1/price-books", json=soon, headers=operator.headers).status_code == 201
    listed = client.get("/api/v1/price-books?limit=1", headers=operator.headers).json()
    assert ([each["version"] for each in listed["data"]], listed["next"], listed["in_force"]) == ([2], 2, 1)
    audit = client.get("/api/v1/audit", headers=operator.headers).json()["data"]
    assert [each["action"] for each in audit].count("price_book.create") == 2


async def test_the_choice_of_a_price_is_explained(client: Client, operator: Operator) -> None:
    batch = {"model": "any_adapter", "service_class": "batch", **PRICE}
    body = {**PAST, "prices": [*ROWS, batch]}
    made = client.post("/api/v1/price-books", json=body, headers=operator.headers).json()
    query = f"base_id=x&service_class=batch&owner={uuid4()}&adapter=pirate"
    choice = client.get(f"/api/v1/price-choice?{query}", headers=operator.headers).json()
    assert (choice["version"], choice["winner"]) == (1, made["prices"][2])
    assert choice["reason"] == "It is the most particular row: it names this service class."
    assert [each["id"] for each in choice["beaten"]] == [made["prices"][1]["id"]]
    assert [each["reason"] for each in choice["refused"]] == ["is for the base itself"]
    assert client.get("/api/v1/price-choice?base_id=x&version=7", headers=operator.headers).status_code == 404


async def test_a_rerating_is_a_dry_run_unless_it_is_meant(
    client: Client, operator: Operator, bench: Bench, tenant: TenantId
) -> None:
    client.post("/api/v1/price-books", json=PAST, headers=operator.headers)
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    client.post("/api/v1/price-books", json=PAST, headers=operator.headers)
    start = bucket_of(NOON)
    wanted: dict[str, Any] = {"start": start.isoformat(), "end": (start + timedelta(minutes=15)).isoformat()}
    url = "/api/v1/price-books/2/re-ratings"
    told = client.post(url, json=wanted, headers=operator.headers).json()
    assert (told["dry_run"], told["id"], told["data"][0]["charges"]) == (True, None, 2)
    assert told["data"][0]["difference"] == "0"
    assert len(await bench.charges(tenant)) == 1
    done = client.post(url, json={**wanted, "dry_run": False}, headers=operator.headers).json()
    assert (done["data"], len(await bench.charges(tenant))) == (told["data"], 3)
    for change, param in (({"end": wanted["start"]}, "end"), ({"start": "2026-01-15T12:01:00Z"}, "start")):
        refused = client.post(url, json={**wanted, **change}, headers=operator.headers)
        assert (refused.status_code, refused.json()["param"]) == (400, param)
    dearer = [{**row, "output": "1.2"} for row in ROWS]
    window = {name: wanted[name] for name in ("start", "end")}
    body = {"book": {**PAST, "prices": dearer}, **window}
    seen = client.post("/api/v1/price-books/preview", json=body, headers=operator.headers).json()
    assert (seen["version"], seen["dry_run"], seen["id"]) == (3, True, None)
    assert (seen["data"][0]["before"], seen["data"][0]["difference"]) == ("0.000018", "0.000006")
    made = client.post("/api/v1/price-books", json=body["book"], headers=operator.headers).json()
    real = client.post("/api/v1/price-books/3/re-ratings", json=wanted, headers=operator.headers).json()
    assert (made["book"]["version"], real["data"]) == (3, seen["data"])
    for change, param, status in REFUSED:
        tried = {"book": change, **window}
        answer = client.post("/api/v1/price-books/preview", json=tried, headers=operator.headers)
        within = f"book.{param}" if answer.json()["param"].startswith("book.") else param
        assert (answer.status_code, answer.json()["param"]) == (status, within)
    missing = client.post("/api/v1/price-books/9/re-ratings", json=wanted, headers=operator.headers)
    assert missing.status_code == 404


async def test_billing_needs_its_scope_and_a_real_month(
    client: Client, operator: Operator, tenant: TenantId
) -> None:
    inference = new_key(client, operator, tenant, "inference")
    for path in ("periods", "statement", "exports"):
        assert client.get(f"/v1/billing/{path}", headers=inference).status_code == 403
    mine = new_key(client, operator, tenant, "usage:read")
    for month in ("2026-13", "2026", "1999-01", "2026-11%0A"):
        answer = client.get(f"/v1/billing/statement?month={month}", headers=mine)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "month")
    assert client.get("/v1/usage?zone=Mars/Olympus", headers=mine).json()["error"]["param"] == "zone"
    assert client.get("/v1/billing/exports?after=nothing", headers=mine).status_code == 404
