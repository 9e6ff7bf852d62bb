"""A worker's walk on a real socket, with real Redis and journal, in front of fake upstreams."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
import uvicorn
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send
from pydantic import SecretStr
from redis.asyncio import Redis

from adapters.base import BaseSpec
from adapters.prompt import PromptEncoder
from adapters.refusal import RequestRefused
from gateway.aliases.weighted import Sticky
from gateway.answers.sealing import DataKeys
from gateway.answers.shelf import Bounds
from gateway.billing.price_book.in_force import PricesInForce
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.db import Database
from gateway.envelope import Envelope
from gateway.errors import ApiError, ModelNotFound, from_refusal
from gateway.events.recorder import Recorder
from gateway.http_protocol import BoundedHttp
from gateway.idempotency.records import Records
from gateway.idempotency.service import Idempotency
from gateway.inference.call import Endpoint
from gateway.inference.client import ClientPatience
from gateway.inference.counting import Counter
from gateway.inference.dispatch import Dispatcher, Patience
from gateway.inference.ending import drained
from gateway.inference.probe import Probe
from gateway.inference.replays import ReplayParts, Replays
from gateway.inference.response_cache import ResponseCache
from gateway.inference.service import BodyLimits, Door, Parts, Walk
from gateway.limits.limiter import Limiter
from gateway.principal import Limits, Principal, TenantId
from gateway.principal import Scope as KeyScope
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.fair_queue import FairQueue
from gateway.receipts.issuer import Issuer
from gateway.receipts.keys import ReceiptKeys
from gateway.receipts.receipt import COMMENT
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Registry, Replica
from gateway.sockets import bound_connections
from gateway.traffic.tally import Tally
from gateway.usage.event import UsageEvent, decode_lines
from gateway.usage.journal import Journal
from tests.gateway.inference.upstream import TOKEN, Upstream

BASE_NAME = "base"
ADAPTER = "a" * 64
DATA_KEYS = DataKeys(SecretStr("data-key-" * 4))
LIMITS = Limits(requests_per_minute=100_000, tokens_per_minute=100_000_000, max_parallel=64)


class Keys:
    """Stands for the authenticator: one tenant, which may change under the walk."""

    def __init__(self) -> None:
        self.now = Principal(
            tenant=TenantId(uuid4()),
            tenant_name="acme",
            key_id="k1",
            scopes=frozenset({KeyScope.INFERENCE}),
            tenant_limits=LIMITS,
            key_limits=Limits(),
            salt="salt",
            epoch=1,
        )
        self.invalidated = 0

    async def principal(self, authorization: str | None) -> Principal:
        assert authorization == "Bearer key"
        return self.now

    def invalidate(self, tenant: TenantId) -> None:
        assert tenant == self.now.tenant
        self.invalidated += 1


class Names:
    """Stands for the catalog: the base, and one adapter."""

    async def resolve(self, principal: Principal, model: str, sticky: Sticky | None = None) -> Resolved:
        if model == BASE_NAME:
            return Resolved(model, "base-id", None)
        if model == "pirate":
            return Resolved(model, "base-id", ResolvedAdapter("pirate", 3, ADAPTER, principal.tenant))
        raise ModelNotFound(model)


@dataclass(frozen=True)
class Keeping:
    """How answers are kept. `database` None: nobody dies, so none is asked."""

    lease_s: float = 15.0
    grace_s: float = 5.0
    wait_s: float = 5.0
    answer_bytes: int = 64 * 1024
    tenant_bytes: int = 1024 * 1024
    items: int = 1_000
    database: Database | None = None


@dataclass
class Worker:
    url: str
    walk: Walk
    replays: Replays
    recorder: Recorder
    probe: Probe
    keys: Keys
    queue: FairQueue
    registry: Registry
    redis: Redis
    journal_dir: Path
    server: uvicorn.Server
    held: Principal = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.keys.now

    def limit(self, **limits: int) -> None:
        self.keys.now = replace(self.keys.now, key_limits=Limits(**limits))
        self.held = self.keys.now

    def events(self) -> list[UsageEvent]:
        found: list[UsageEvent] = []
        for path in sorted(self.journal_dir.glob("*.jsonl")):
            events, torn = decode_lines(path.read_bytes())
            assert torn == 0
            found += events
        return found

    async def settled(self) -> None:
        """Waits for every ending, then nothing may be held any more."""
        for _ in range(200):
            await drained()
            if not self.queue.running and not self.queue.waiting:
                break
            await asyncio.sleep(0.01)
        tenant = self.keys.now.tenant
        assert self.queue.running == self.queue.waiting == 0
        assert await self.redis.keys(f"{{{tenant}}}:*reservation*") == []
        assert await self.redis.zcard(f"{{{tenant}}}:leases") == 0
        assert all(replica.in_flight == replica.in_flight_tokens == 0 for replica in self.registry.all)


async def until(happened: Callable[[], object], within_s: float = 5.0) -> None:
    """Waits for what nothing announces."""
    for _ in range(round(within_s / 0.005)):
        if happened():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it did not happen within {within_s} s")


def cut_receipt(raw: bytes) -> tuple[bytes, str | None]:
    """A stream without its receipt, which is each answer's own, and the receipt."""
    before, comment, rest = raw.partition(COMMENT)
    if not comment:
        return raw, None
    receipt, _, after = rest.partition(b"\n\n")
    return before + after, receipt.decode()


MakeWorker = Callable[..., "asyncio.Future[Worker]"]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream().running() as running:
        yield running


@pytest.fixture
async def second() -> AsyncIterator[Upstream]:
    async with Upstream().running() as running:
        yield running


@pytest.fixture(scope="session")
def base_and_encoder(demo_model_dir: Path) -> tuple[BaseSpec, PromptEncoder]:
    return BaseSpec.from_dir(demo_model_dir, BASE_NAME), PromptEncoder(demo_model_dir)


@pytest.fixture
async def make_worker(
    redis: Redis, tmp_path: Path, base_and_encoder: tuple[BaseSpec, PromptEncoder]
) -> AsyncIterator[Callable[..., object]]:
    async with AsyncExitStack() as stack:

        async def make(
            *upstreams: Upstream,
            capacity: int = 64,
            patience: Patience | None = None,
            keeping: Keeping | None = None,
            client: ClientPatience | None = None,
        ) -> Worker:
            return await stack.enter_async_context(
                _worker(
                    list(upstreams),
                    redis,
                    tmp_path,
                    base_and_encoder,
                    capacity,
                    patience,
                    keeping or Keeping(),
                    client or ClientPatience(),
                )
            )

        yield make


@pytest.fixture
async def worker(make_worker: Callable[..., object], upstream: Upstream) -> Worker:
    return await make_worker(upstream)  # type: ignore[misc, no-any-return]  # the fixture's function is async


@asynccontextmanager
async def _worker(
    upstreams: list[Upstream],
    redis: Redis,
    folder: Path,
    base_and_encoder: tuple[BaseSpec, PromptEncoder],
    capacity: int,
    patience: Patience | None,
    keeping: Keeping,
    client: ClientPatience,
) -> AsyncIterator[Worker]:
    base, encoder = base_and_encoder
    keys = Keys()
    async with ReplicaSession(connect_timeout_s=2, max_connections=256) as session:
        registry = Registry([Replica(up.url, MotetDriver(session, up.url, TOKEN)) for up in upstreams])
        await registry.poll_once()
        queue = FairQueue(
            QueueLimits(max_items=1000, max_items_tenant=1000, max_wait_s=10), capacity=capacity
        )
        journal = Journal(folder / "journal")
        limiter = Limiter(redis, lease_s=60)
        replays = _replays(keeping, redis, registry, limiter, journal)
        recorder = Recorder(Tally(uuid4()), most_a_minute=1_000)
        renewing = asyncio.create_task(replays.run())
        walk = Walk(
            Parts(
                keys=keys,
                catalog=Names(),
                limiter=limiter,
                replays=replays,
                recorder=recorder,
                counter=Counter(encoder, base.max_model_len, base.vocab_size),
                dispatcher=Dispatcher(queue, registry, patience or Patience(10, 5, 5, 3)),
                registry=registry,
                journal=journal,
                receipts=replays.parts.receipts,
                body=BodyLimits(8 * 1024 * 1024, 5),
                client=client,
            )
        )
        async with _served(walk, keys) as (url, server):
            yield Worker(
                url,
                walk,
                replays,
                recorder,
                Probe(walk, base),
                keys,
                queue,
                registry,
                redis,
                folder / "journal",
                server,
            )
        await drained()
        renewing.cancel()
        await journal.close()


def prices_in_force() -> PricesInForce:
    """Version 7, for all that these tests do."""
    prices = PricesInForce()
    prices.learn([(datetime(2025, 1, 1, tzinfo=UTC), 7)], datetime.now(UTC) + timedelta(hours=1))
    return prices


def _replays(
    keeping: Keeping, redis: Redis, registry: Registry, limiter: Limiter, journal: Journal
) -> Replays:
    bounds = Bounds(keeping.items, keeping.tenant_bytes, keeping.answer_bytes)
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", "postgresql://nobody@127.0.0.1:1/none")
    return Replays(
        ReplayParts(
            cache=ResponseCache(
                redis, DATA_KEYS, entry_bytes=keeping.answer_bytes, tenant_bytes=keeping.tenant_bytes
            ),
            idempotency=Idempotency(
                Records(redis, bounds, lease_s=keeping.lease_s),
                DATA_KEYS,
                keeping.database or nowhere,
                lease_s=keeping.lease_s,
                grace_s=keeping.grace_s,
            ),
            keys=DATA_KEYS,
            registry=registry,
            limiter=limiter,
            journal=journal,
            receipts=Issuer(ReceiptKeys(DATA_KEYS), prices_in_force()),
            wait_s=keeping.wait_s,
        )
    )


@asynccontextmanager
async def _served(walk: Walk, keys: Keys) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    stale = {"principal": keys.now}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == ScopeType.HTTP
        if (
            stale["principal"].tenant != keys.now.tenant
            or stale["principal"].key_limits != keys.now.key_limits
            or stale["principal"].response_cache != keys.now.response_cache
        ):
            stale["principal"] = keys.now
        door = Door(Endpoint(scope["path"]), stale["principal"], scope, receive, time.monotonic())
        try:
            await walk.serve(door, send)
        except (ApiError, RequestRefused) as raised:
            error = raised if isinstance(raised, ApiError) else from_refusal(raised)
            headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": error.openai_body(), "more_body": False})

    listener = socket.socket()
    bound_connections(listener, gone_s=5)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            Envelope(app),
            http=BoundedHttp,
            lifespan="off",
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # the test's process keeps its own
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        await serving
        listener.close()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"authorization": "Bearer key"}) as session:
        yield session
