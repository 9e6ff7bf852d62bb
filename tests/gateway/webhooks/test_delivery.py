"""From the outbox to a receiver: each event to whoever wants it, signed, again until it is taken or given
up."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select, text, update

from gateway.answers.sealing import DataKeys
from gateway.audit.repository import EventFilters
from gateway.audit.service import AuditLog
from gateway.db import Database
from gateway.errors import Conflict
from gateway.models import WebhookDelivery, WebhookEndpoint, WebhookEvent
from gateway.principal import TenantId
from gateway.webhooks.delivery import LOG_KEPT, MAX_SENDING_TENANT, Deliveries
from gateway.webhooks.outbox import KEPT_DAYS, publish
from gateway.webhooks.schedule import DISABLE_AFTER, GIVE_UP_AFTER, JITTER, LONGEST_S, pause_s
from gateway.webhooks.schemas import EndpointChange, EndpointIn
from gateway.webhooks.sealed import Sealer
from gateway.webhooks.sender import Sender
from gateway.webhooks.service import MAX_ENDPOINTS, Webhooks
from tests.gateway.inference.conftest import until
from tests.gateway.webhooks.conftest import (
    ACTOR,
    KEYS,
    LOCAL,
    MakeEndpoint,
    Receiver,
    make_due,
    receiving,
    told,
)

KIND = "budget.threshold"


async def tell(db: Database, tenant: TenantId, once: str = "once", kind: str = KIND) -> None:
    async with db.system_session() as session:
        await publish(session, tenant, kind, {"percent": 80}, once=once)


async def test_an_event_reaches_each_endpoint_that_wants_it_signed(
    db: Database, tenant: TenantId, receiver: Receiver, endpoint: MakeEndpoint, deliveries: Deliveries
) -> None:
    _, secret = await endpoint(kinds=[KIND])
    await endpoint(kinds=["export.ready"])
    await tell(db, tenant)
    await deliveries.run_once()
    await deliveries.run_once()
    (heard,) = receiver.heard
    body = json.loads(heard.body)
    assert (body["type"], body["tenant"], body["data"]) == (KIND, str(tenant), {"percent": 80})
    assert datetime.fromisoformat(body["timestamp"]).utcoffset() == timedelta(0)
    assert heard.headers["Content-Type"] == "application/json"
    signed = f"{heard.headers['webhook-id']}.{heard.headers['webhook-timestamp']}.".encode() + heard.body
    assert heard.headers["webhook-signature"] == secret.sign(signed)
    assert abs(int(heard.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60


async def test_one_that_fails_is_sent_again_under_the_same_id(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    receiver.statuses = [500, 302, 204]
    receiver.location = receiver.url + "/elsewhere"
    endpoint_id, _ = await endpoint()
    await tell(db, tenant)
    for attempts, status in ((1, 500), (2, 302)):
        await deliveries.run_once()
        (waiting,) = await told(webhooks, tenant, endpoint_id)
        assert (waiting.state, waiting.attempts, waiting.last_status) == ("waiting", attempts, status)
        assert waiting.next_at is not None
        assert waiting.next_at > datetime.now(UTC)
        assert (await webhooks.get(tenant, endpoint_id)).failing_since is not None
        await deliveries.run_once()  # not yet
        assert len(receiver.heard) == attempts
        await make_due(db)
    await deliveries.run_once()
    (done,) = await told(webhooks, tenant, endpoint_id)
    assert (done.state, done.attempts, done.last_status, done.last_error) == ("delivered", 3, 204, None)
    assert (await webhooks.get(tenant, endpoint_id)).failing_since is None
    assert len({heard.headers["webhook-id"] for heard in receiver.heard}) == 1
    assert len({heard.body for heard in receiver.heard}) == 1


async def test_after_three_days_it_is_given_up(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    receiver.statuses = [503]
    endpoint_id, _ = await endpoint()
    await tell(db, tenant)
    await deliveries.run_once()
    await make_due(db, begun_at=datetime.now(UTC) - GIVE_UP_AFTER)
    await deliveries.run_once()
    (failed,) = await told(webhooks, tenant, endpoint_id)
    assert (failed.state, failed.attempts, failed.next_at) == ("failed", 2, None)
    assert (await webhooks.get(tenant, endpoint_id)).status == "active"
    receiver.statuses = [200]
    again = await webhooks.redeliver(ACTOR, tenant, endpoint_id, failed.id)
    assert (again.state, again.event_id) == ("waiting", failed.event_id)
    await deliveries.run_once()
    assert [each.state for each in await told(webhooks, tenant, endpoint_id)] == ["delivered"]


@pytest.mark.parametrize(("status", "reason"), [(500, "nothing was delivered for 5 days"), (410, "gone")])
async def test_an_endpoint_that_fails_for_days_or_is_gone_is_disabled(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
    status: int,
    reason: str,
) -> None:
    receiver.statuses = [status]
    endpoint_id, _ = await endpoint()
    async with db.system_session() as session:
        long_ago = datetime.now(UTC) - DISABLE_AFTER if status != 410 else None
        await session.execute(
            update(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id).values(failing_since=long_ago)
        )
    await tell(db, tenant)
    await deliveries.run_once()
    found = await webhooks.get(tenant, endpoint_id)
    assert found.status == "disabled"
    assert reason in (found.disabled_reason or "")
    (failed,) = await told(webhooks, tenant, endpoint_id)
    assert failed.state == "failed"
    await tell(db, tenant, once="later")
    await deliveries.run_once()
    assert len(receiver.heard) == 1
    (event, *_) = await AuditLog(db).events(EventFilters(tenant), None, 10)
    assert (event.action, event.actor) == ("webhook.disable", "system")
    active = await webhooks.change(ACTOR, tenant, endpoint_id, EndpointChange(status="active"))
    assert (active.status, active.failing_since, active.disabled_reason) == ("active", None, None)


async def test_a_process_that_dies_while_it_sends_leaves_it_to_the_next(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    receiver.hold = asyncio.Event()
    endpoint_id, _ = await endpoint()
    await tell(db, tenant)
    sending = asyncio.create_task(deliveries.run_once())
    await until(lambda: receiver.heard)
    sending.cancel()
    await asyncio.wait({sending})
    receiver.hold.set()
    receiver.hold = None
    await deliveries.run_once()
    assert len(receiver.heard) == 1  # another process may be at it
    await make_due(db)
    await deliveries.run_once()
    assert [each.state for each in await told(webhooks, tenant, endpoint_id)] == ["delivered"]
    first, second = receiver.heard
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_one_that_can_t_be_sent_holds_up_no_other(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, _ = await endpoint()
    good, _ = await endpoint()
    plain = Sealer.url

    def url(self: Sealer, each: WebhookEndpoint) -> str:
        return f"{1 // (each.id != broken)}" and plain(self, each)

    monkeypatch.setattr(Sealer, "url", url)
    await tell(db, tenant)
    await deliveries.run_once()
    monkeypatch.undo()
    assert [each.state for each in await told(webhooks, tenant, good)] == ["delivered"]
    (waiting,) = await told(webhooks, tenant, broken)
    assert (waiting.state, waiting.last_error) == ("waiting", "a fault of ours")


async def test_two_leaders_at_once_send_each_event_once(
    db: Database, tenant: TenantId, receiver: Receiver, endpoint: MakeEndpoint, deliveries: Deliveries
) -> None:
    await endpoint()
    for number in range(30):
        await tell(db, tenant, once=str(number))
    other = Deliveries(db, Sender(LOCAL, total_s=5), Sealer(KEYS))
    await asyncio.gather(deliveries.run_once(), other.run_once())
    assert len(receiver.heard) == len({heard.headers["webhook-id"] for heard in receiver.heard}) == 30


async def test_a_tenant_whose_endpoints_hang_holds_its_own_share_only(
    db: Database,
    new_tenant: Callable[[], Awaitable[TenantId]],
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    receiver.hold = asyncio.Event()
    await endpoint()
    for number in range(20):
        await tell(db, tenant, once=str(number))
    async with receiving() as other:
        quick = await new_tenant()
        await webhooks.create(ACTOR, quick, EndpointIn(url=other.url))
        sending = asyncio.create_task(deliveries.run_once())
        await until(lambda: receiver.now == MAX_SENDING_TENANT)
        await tell(db, quick)
        await until(lambda: other.heard)
    assert receiver.most == MAX_SENDING_TENANT
    receiver.hold.set()
    await sending
    assert len(receiver.heard) == 20


async def test_while_a_secret_is_replaced_both_sign_and_then_the_new_one_alone(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    endpoint_id, old = await endpoint()
    _, new = await webhooks.rotate(ACTOR, tenant, endpoint_id, 24)
    await webhooks.ping(ACTOR, tenant, endpoint_id)
    await deliveries.run_once()
    async with db.system_session() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        rotated = update(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id)
        await session.execute(rotated.values(previous_until=past))
    await webhooks.ping(ACTOR, tenant, endpoint_id)
    await deliveries.run_once()
    _, newest = await webhooks.rotate(ACTOR, tenant, endpoint_id, 0)
    await webhooks.ping(ACTOR, tenant, endpoint_id)
    await deliveries.run_once()
    for heard, held in zip(receiver.heard, ([new, old], [new], [newest]), strict=True):
        signed = f"{heard.headers['webhook-id']}.{heard.headers['webhook-timestamp']}.".encode() + heard.body
        assert heard.headers["webhook-signature"].split() == [secret.sign(signed) for secret in held]
        assert json.loads(heard.body)["type"] == "ping"


async def test_nothing_of_an_endpoint_lies_open_in_the_database(
    db: Database, tenant: TenantId, receiver: Receiver, endpoint: MakeEndpoint, webhooks: Webhooks
) -> None:
    endpoint_id, secret = await endpoint(url=receiver.url + "?token=very-secret")
    async with db.system_reader() as session:
        row = await session.scalar(
            text("SELECT row_to_json(e)::text FROM webhook_endpoints e WHERE id = :id"), {"id": endpoint_id}
        )
        (log,) = (
            await session.scalars(
                text("SELECT details::text FROM audit_events WHERE target = :id"), {"id": str(endpoint_id)}
            )
        ).all()
    kept = b64decode(secret.text.removeprefix("whsec_")).hex()
    for told_of in (row, log):
        assert "very-secret" not in told_of
        assert b"very-secret".hex() not in told_of
        assert kept not in told_of


async def test_a_new_data_key_takes_over_what_the_former_sealed(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    endpoint_id, secret = await endpoint()
    await webhooks.rotate(ACTOR, tenant, endpoint_id, 1)
    both = DataKeys(SecretStr("new-key-" * 4), SecretStr("data-key-" * 4))
    new = Sealer(DataKeys(SecretStr("new-key-" * 4)))
    await Deliveries(db, Sender(LOCAL), Sealer(both)).tidy()
    async with db.system_reader() as session:
        row = await session.get_one(WebhookEndpoint, endpoint_id)
    assert new.url(row) == receiver.url
    assert new.secrets(row)[1] == secret
    assert (await webhooks.get(tenant, endpoint_id)).url is None  # its process has the former key alone
    await webhooks.ping(ACTOR, tenant, endpoint_id)
    await deliveries.run_once()
    (waiting,) = await told(webhooks, tenant, endpoint_id)
    assert "can't be opened" in (waiting.last_error or "")


async def test_what_is_old_is_forgotten_and_what_waits_is_not(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
) -> None:
    endpoint_id, _ = await endpoint()
    for once in ("old", "new"):
        await tell(db, tenant, once=once)
        await deliveries.run_once()
    receiver.statuses = [500]
    await tell(db, tenant, once="waits")
    await deliveries.run_once()
    old, _, _ = await told(webhooks, tenant, endpoint_id)
    async with db.system_session() as session:
        ago = datetime.now(UTC) - LOG_KEPT
        await session.execute(
            update(WebhookDelivery).where(WebhookDelivery.id == old.id).values(finished_at=ago)
        )
    await deliveries.tidy()
    assert [each.state for each in await told(webhooks, tenant, endpoint_id)] == ["delivered", "waiting"]
    async with db.system_session() as session:
        ago = datetime.now(UTC) - timedelta(days=KEPT_DAYS)
        mine = WebhookEvent.tenant_id == tenant
        await session.execute(
            update(WebhookEvent).where(mine, WebhookEvent.once == "new").values(created_at=ago)
        )
    await deliveries.tidy()
    async with db.system_reader() as session:
        left = select(func.array_agg(WebhookEvent.once)).where(WebhookEvent.tenant_id == tenant)
        assert sorted(await session.scalar(left) or []) == ["old", "waits"]
    assert [each.state for each in await told(webhooks, tenant, endpoint_id)] == ["waiting"]


async def test_a_tenant_has_so_many_endpoints_and_no_more(
    tenant: TenantId, endpoint: MakeEndpoint, webhooks: Webhooks
) -> None:

    made = [await endpoint() for _ in range(MAX_ENDPOINTS)]
    with pytest.raises(Conflict):
        await endpoint()
    await webhooks.delete(ACTOR, tenant, made[0][0])
    await endpoint()


def test_pauses_grow_to_their_longest_and_no_two_are_alike() -> None:
    class Draw:
        def __init__(self, part: float) -> None:
            self._part = part

        def uniform(self, low: float, high: float) -> float:
            return low + (high - low) * self._part

    middle: Any = Draw(0.5)
    pauses = [pause_s(attempts, middle) for attempts in range(1, 40)]
    assert pauses[:4] == [10, 30, 90, 270]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_S
    num_tries = 1 + sum(1 for place in range(39) if sum(pauses[: place + 1]) <= GIVE_UP_AFTER.total_seconds())
    assert 20 <= num_tries <= 30  # what the documents say of three days
    early: Any = Draw(0.0)
    late: Any = Draw(1.0)
    assert (pause_s(1, early), pause_s(1, late)) == (10 * (1 - JITTER), 10 * (1 + JITTER))
