"""A receiver on a real socket, which the rules let in, and what delivers to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr
from sqlalchemy import text, update

from gateway.answers.sealing import DataKeys
from gateway.audit.service import Actor
from gateway.db import Database
from gateway.models import WebhookDelivery
from gateway.principal import TenantId
from gateway.webhooks.delivery import Deliveries
from gateway.webhooks.destinations import DestinationRules
from gateway.webhooks.schemas import DeliveryOut, EndpointIn
from gateway.webhooks.sealed import Sealer
from gateway.webhooks.sender import Sender
from gateway.webhooks.service import Webhooks

LOCAL = DestinationRules.of("127.0.0.0/8", "443", http=True)
ACTOR = Actor("admin:test@example.com")
KEYS = DataKeys(SecretStr("data-key-" * 4))


@dataclass
class Heard:
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers with `statuses`, the last one over and over."""

    url: str
    statuses: list[int] = field(default_factory=lambda: [200])
    location: str | None = None
    retry_after: str | None = None
    heard: list[Heard] = field(default_factory=list)
    hold: asyncio.Event | None = None
    most: int = 0  # at a time
    now: int = 0
    connections: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            body = await request.read()
            self.heard.append(Heard(dict(request.headers), body))
            if self.hold is not None:
                await self.hold.wait()
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            headers = {} if self.location is None else {"location": self.location}
            if self.retry_after is not None:
                headers["retry-after"] = self.retry_after
            return web.Response(status=status, headers=headers, text="what it says is nobody's concern")
        finally:
            self.now -= 1


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver("")
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@pytest.fixture
async def quiet(db: Database) -> None:
    """What other tests published and nobody was to send is out of the way."""
    async with db.system_session() as session:
        await session.execute(text("DELETE FROM webhook_events"))


@pytest.fixture
def webhooks(db: Database, quiet: None) -> Webhooks:
    return Webhooks(db, Sealer(KEYS), LOCAL)


@pytest.fixture
def deliveries(db: Database, quiet: None) -> Deliveries:
    return Deliveries(db, Sender(LOCAL, total_s=5), Sealer(KEYS), random.Random(1))


MakeEndpoint = Callable[..., Awaitable[Any]]


@pytest.fixture
def endpoint(webhooks: Webhooks, tenant: TenantId, receiver: Receiver) -> MakeEndpoint:
    """Makes one of the tenant's at the receiver; gives its id and secret."""

    async def make(**more: Any) -> Any:
        made, secret = await webhooks.create(ACTOR, tenant, EndpointIn(**{"url": receiver.url, **more}))
        return made.id, secret

    return make


async def told(webhooks: Webhooks, tenant: TenantId, endpoint_id: Any) -> list[DeliveryOut]:
    """Its log, oldest first."""
    found = await webhooks.deliveries(tenant, endpoint_id, None, 200)
    return [DeliveryOut.of(*each) for each in reversed(found.rows)]


async def make_due(db: Database, **more: Any) -> None:
    """As if the time until the next try had passed."""
    async with db.system_session() as session:
        statement = update(WebhookDelivery).where(WebhookDelivery.state == "waiting")
        await session.execute(statement.values(next_at=text("now() - interval '1 second'"), **more))
