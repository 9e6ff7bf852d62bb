"""A database of its own for each test: the price book is one for all tenants, and nothing in it is ever
removed."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest
from sqlalchemy import func, select

import migrations
from adapters.store import open_store
from deploy.local.roles import DATABASE, query
from deploy.local.services import DatabaseUrls, EmbeddedPostgres
from gateway.audit.service import Actor
from gateway.billing.charging.service import Charging, ReRatings
from gateway.billing.exports.maker import Maker
from gateway.billing.exports.service import Exports
from gateway.billing.months import end_of, parse_month
from gateway.billing.periods.service import Closing
from gateway.billing.price_book.prices import ModelKind
from gateway.billing.price_book.schemas import PriceIn, VersionIn
from gateway.billing.price_book.service import PriceBook
from gateway.billing.statements.service import Statements
from gateway.db import Database
from gateway.models import Tenant, UsageCharge, UsageLedger
from gateway.principal import TenantId
from gateway.usage.event import UsageEvent
from gateway.usage.repository import insert_events
from gateway.usage.watermark import tell_engine
from tests.gateway.usage.test_journal import make_event

BASE = "b" * 64
OPERATOR = Actor("admin:test@example.com")
JANUARY = parse_month("2026-01")
FEBRUARY = parse_month("2026-02")
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
NOTHING: dict[str, Any] = dict.fromkeys(
    ("billed_prompt_tokens", "billed_cached_tokens", "billed_completion_tokens"), 0
)


@dataclass(frozen=True)
class Server:
    postgres: EmbeddedPostgres
    urls: DatabaseUrls
    numbers: Iterator[int]


@pytest.fixture(scope="session")
def billing_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="motet-billing-", ignore_cleanup_errors=True) as folder:
        postgres = EmbeddedPostgres(Path(folder))
        urls = postgres.start()
        query(postgres.superuser_url, "alter system set fsync = off; select pg_reload_conf()")  # thrown away
        migrations.upgrade(urls.owner)
        yield Server(postgres, urls, itertools.count())
        postgres.stop()


@pytest.fixture
def database(billing_server: Server) -> DatabaseUrls:
    """A fresh copy, at the newest revision."""
    name = f"billing_{next(billing_server.numbers)}"
    query(
        billing_server.postgres.superuser_url, f"create database {name} template {DATABASE} owner motet_owner"
    )
    urls = billing_server.urls
    return DatabaseUrls(*(_named(url, name) for url in (urls.owner, urls.app, urls.system)))


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def request_id(moment: datetime) -> UUID:
    """A UUIDv7 of that moment."""
    milliseconds = int(moment.timestamp() * 1000)
    return UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | secrets.randbits(62))


def usage(tenant: TenantId, ended_at: datetime = NOON, **more: Any) -> UsageEvent:
    """One billed request: 100 prompt tokens, 40 of them cached, and 10 generated."""
    fields: dict[str, Any] = {
        "request_id": request_id(ended_at - timedelta(seconds=2)),
        "tenant_id": tenant,
        "base_id": BASE,
        "created_at": ended_at - timedelta(seconds=2),
        "ended_at": ended_at,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "completion_tokens": 10,
        "billed_prompt_tokens": 100,
        "billed_cached_tokens": 40,
        "billed_completion_tokens": 10,
    }
    return make_event(**{**fields, **more})


def prices(text: str = "1", **more: Any) -> list[PriceIn]:
    """One price for all: input and cached input at it, output at twice of it, cached answers at a tenth."""
    price = Decimal(text)
    row: dict[str, Any] = {
        "input": text,
        "cached_input": text,
        "output": f"{price * 2:f}",
        "answer_input": f"{price / 10:f}",
        "answer_output": f"{price / 10:f}",
        **more,
    }
    return [PriceIn(model=kind, **row) for kind in (ModelKind.BASE, ModelKind.ANY_ADAPTER)]


class Bench:
    """Billing over one database, driven by hand."""

    def __init__(self, db: Database, home: Path) -> None:
        self.db = db
        self.store = open_store(f"file://{home / 'store'}")
        self.book = PriceBook(db)
        self.charging = Charging(db)
        self.reratings = ReRatings(db)
        self.closing = Closing(db, timedelta(hours=1))
        self.statements = Statements(db)
        self.exports = Exports(db, self.store, home / "downloads", "Operator Ltd")
        self.maker = Maker(db, self.store, home / "exports", "Operator Ltd")

    async def set_prices(self, rows: Sequence[PriceIn], at: datetime | None = None, **more: Any) -> int:
        wanted = VersionIn(
            effective_from=at or datetime(2025, 1, 1, tzinfo=UTC), prices=list(rows), retroactive=True, **more
        )
        version, _ = await self.book.create(OPERATOR, wanted)
        return version.version

    async def add(self, *events: UsageEvent) -> None:
        async with self.db.system_session() as session:
            await insert_events(session, events)

    async def complete_until(self, moment: datetime) -> None:
        async with self.db.system_session() as session:
            await tell_engine(session, "journal", moment)

    async def close(self, month: str) -> None:
        """Everything of the month is in, and it is over."""
        await self.charging.run_once()
        await self.complete_until(end_of(parse_month(month)) + timedelta(days=1))
        assert await self.closing.run_once(end_of(parse_month(month)) + timedelta(days=1)) >= 1

    async def charges(self, tenant: TenantId) -> list[UsageCharge]:
        async with self.db.system_reader() as session:
            found = select(UsageCharge).where(UsageCharge.tenant_id == tenant).order_by(UsageCharge.seq)
            return list(await session.scalars(found))

    async def charged(self, tenant: TenantId) -> tuple[int, int, int, int]:
        """(input, cached, output, amount), summed."""
        rows = await self.charges(tenant)
        return (
            sum(row.input_tokens for row in rows),
            sum(row.cached_tokens for row in rows),
            sum(row.output_tokens for row in rows),
            int(sum(row.amount for row in rows)),
        )

    async def ledger(self, tenant: TenantId) -> tuple[int, int, int]:
        """(input, cached, output) billed."""
        async with self.db.system_reader() as session:
            prompt, cached, output = (
                await session.execute(
                    select(
                        func.coalesce(func.sum(UsageLedger.billed_prompt_tokens), 0),
                        func.coalesce(func.sum(UsageLedger.billed_cached_tokens), 0),
                        func.coalesce(func.sum(UsageLedger.billed_completion_tokens), 0),
                    ).where(UsageLedger.tenant_id == tenant, UsageLedger.purpose == "tenant")
                )
            ).one()
        return int(prompt - cached), int(cached), int(output)

    async def tenant_name(self, tenant: TenantId) -> str:
        async with self.db.system_reader() as session:
            return str(await session.scalar(select(Tenant.name).where(Tenant.id == tenant)))


@pytest.fixture
def bench(db: Database, tmp_path: Path) -> Bench:
    return Bench(db, tmp_path)
