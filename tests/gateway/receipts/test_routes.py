"""`/v1/usage/{request_id}/receipt`: final, pending, and not there."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

from litestar.testing import TestClient
from redis.asyncio import Redis

from gateway.db import Database
from gateway.ids import uuid7
from gateway.limits.redis_store import reservation_key
from gateway.principal import TenantId
from gateway.receipts.keys import ReceiptKey, key_that_signed
from gateway.receipts.receipt import parse
from gateway.redis import TenantKeys
from gateway.services import Services
from gateway.usage.journal import Journal
from gateway.usage.repository import insert_events
from tests.gateway.conftest import Operator
from tests.gateway.usage.test_journal import make_event
from tests.gateway.usage.test_routes import new_key

Client = TestClient[Any]


def receipt_of(client: Client, headers: dict[str, str], request_id: UUID) -> tuple[int, Any]:
    answer = client.get(f"/v1/usage/{request_id}/receipt", headers=headers)
    told = answer.json()
    if told.get("status") == "final":
        read, billed = parse(told["receipt"]), told.pop("billed")
        assert (read.input_tokens, read.cached_tokens, read.output_tokens, read.outcome) == (
            *(billed[f"{kind}_tokens"] for kind in ("input", "cached", "output")),
            billed["outcome"],
        )
    return answer.status_code, told


def final(request_id: UUID, receipt: str) -> tuple[int, Any]:
    return 200, {"request_id": str(request_id), "status": "final", "receipt": receipt}


def pending(request_id: UUID) -> tuple[int, Any]:
    return 200, {"request_id": str(request_id), "status": "pending", "receipt": None, "billed": None}


async def test_a_receipt_is_checked_with_the_keys_that_a_tenant_may_have(
    client: Client, operator: Operator, tenant: TenantId, db: Database
) -> None:
    event = make_event(tenant_id=tenant, price_book_version=3)
    async with db.system_session() as session:
        await insert_events(session, [event])
    headers = new_key(client, operator, tenant, "usage:read")
    status, told = receipt_of(client, headers, event.request_id)
    (key,) = client.get("/v1/usage/receipt-keys", headers=headers).json()["data"]
    held = ReceiptKey(urlsafe_b64decode(key["key"] + "="))
    assert (status, told["status"], key["id"], key["current"]) == (200, "final", held.id, True)
    read = parse(told["receipt"])
    assert key_that_signed(read, [held]) == held
    assert (read.price_book_version, read.input_tokens, read.output_tokens) == (3, 3, 4)
    seen = client.get(f"/api/v1/tenants/{tenant}/usage/{event.request_id}/receipt", headers=operator.headers)
    assert seen.json().items() >= told.items()
    assert seen.json()["billed"]["amount"] is None  # the book has no such version


async def test_it_says_what_its_tokens_cost_under_the_version_that_it_names(
    client: Client, operator: Operator, tenant: TenantId, db: Database
) -> None:
    rates = {"input": "1", "cached_input": "0.5", "output": "2.000001"}
    of_cache = {"answer_input": "0.25", "answer_output": "0.125"}
    rows = [{"model": model, **rates, **of_cache} for model in ("base", "any_adapter")]
    book = {"effective_from": "2020-01-01T00:00:00Z", "retroactive": True, "prices": rows}
    made = client.post("/api/v1/price-books", json=book, headers=operator.headers).json()["book"]
    named = {"tenant_id": tenant, "price_book_version": made["version"], "billed_prompt_tokens": 100}
    named |= {"billed_cached_tokens": 40, "billed_completion_tokens": 7, "tier": "host"}
    computed, kept = make_event(**named), make_event(**named, source="cache")
    async with db.system_session() as session:
        await insert_events(session, [computed, kept])
    for event, amount in ((computed, "0.000094000007"), (kept, "0.000025875")):
        url = f"/api/v1/tenants/{tenant}/usage/{event.request_id}/receipt"
        billed = client.get(url, headers=operator.headers).json()["billed"]
        assert (billed["amount"], billed["currency"], billed["tier"]) == (amount, "USD", "host")


async def test_anothers_is_as_unknown_as_nobodys(
    client: Client, operator: Operator, new_tenant: Callable[[], Awaitable[TenantId]], db: Database
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    event = make_event(tenant_id=theirs)
    async with db.system_session() as session:
        await insert_events(session, [event])
    headers = new_key(client, operator, mine, "usage:read")
    told = [receipt_of(client, headers, each) for each in (event.request_id, uuid7(), uuid4())]
    assert told[0] == told[1] == told[2]
    assert told[0][0] == 404


async def test_what_runs_or_is_on_its_way_is_pending(
    client: Client,
    operator: Operator,
    new_tenant: Callable[[], Awaitable[TenantId]],
    db: Database,
    redis: Redis,
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    headers, others = (new_key(client, operator, each, "inference") for each in (mine, theirs))
    running = uuid7()
    await redis.set(reservation_key(TenantKeys(mine), str(running)), "1", px=5_000)
    services = client.app.state.services
    assert isinstance(services, Services)
    written = make_event(tenant_id=mine)
    journal = Journal(services.settings.journal_dir)  # of another worker, which lives
    await journal.append(written)
    uncounted = make_event(tenant_id=mine, counted=False, outcome="aborted")
    async with db.system_session() as session:
        await insert_events(session, [uncounted])
    for request_id in (running, written.request_id, uncounted.request_id):
        assert receipt_of(client, headers, request_id) == pending(request_id)
        assert receipt_of(client, others, request_id)[0] == 404
    async with db.system_session() as session:
        await insert_events(session, [written])
    for segment in journal.rotate():
        journal.forget(segment)
    await journal.close()
    assert receipt_of(client, headers, written.request_id) == final(
        written.request_id, services.receipts.keys.sign(written)
    )


async def test_it_is_the_attempts_that_answered(
    client: Client, operator: Operator, tenant: TenantId, db: Database
) -> None:
    request_id = uuid7()
    nothing = {"billed_prompt_tokens": 0, "billed_completion_tokens": 0}
    lost = make_event(tenant_id=tenant, request_id=request_id, outcome="failed", **nothing)
    answered = make_event(tenant_id=tenant, request_id=request_id, attempt=2)
    probe = make_event(tenant_id=tenant, purpose="probe", **nothing)
    sign = client.app.state.services.receipts.keys.sign
    headers = new_key(client, operator, tenant, "usage:read")
    async with db.system_session() as session:
        await insert_events(session, [lost, probe])
    assert receipt_of(client, headers, request_id) == final(request_id, sign(lost))
    async with db.system_session() as session:
        await insert_events(session, [answered])
    assert receipt_of(client, headers, request_id) == final(request_id, sign(answered))
    assert receipt_of(client, headers, probe.request_id)[0] == 404


async def test_who_may_not(client: Client, operator: Operator, tenant: TenantId) -> None:
    told = {"adapters:read": (403, 403), "inference": (404, 403), "usage:read": (404, 200)}
    for scope, statuses in told.items():
        headers = new_key(client, operator, tenant, scope)
        one = receipt_of(client, headers, uuid7())[0]
        keys = (await asyncio.to_thread(client.get, "/v1/usage/receipt-keys", headers=headers)).status_code
        assert (one, keys) == statuses
