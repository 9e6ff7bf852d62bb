"""Sessions. A tenant's session sees that tenant's rows only, by the database's own rule; the system's sees
all.

Four types, so that a function says in its signature what it may do: `TenantRead`, `TenantWrite`,
`SystemRead`, `SystemWrite`. One `async with` is one transaction, committed when the block ends and rolled
back when it raises. Keep them short: never hold one while waiting for anything but the database.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import asyncpg
import structlog
from sqlalchemy import TextClause, make_url, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from gateway.errors import Unavailable
from gateway.principal import TenantId
from migrations import async_url

log = structlog.get_logger(__name__)


class TenantRead(AsyncSession):
    """Reads one tenant's rows (role motet_app)."""


class TenantWrite(TenantRead):
    """Reads and writes one tenant's rows (role motet_app)."""


class SystemRead(AsyncSession):
    """Reads every tenant's rows (role motet_system): key lookup, admin views, control."""


class SystemWrite(SystemRead):
    """Writes every tenant's rows (role motet_system): admin changes, ledger, control."""


_Session = TypeVar("_Session", bound=AsyncSession)

_READ_ONLY = text("SET TRANSACTION READ ONLY")
_SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of one engine; connections = (size + overflow) x engines x workers."""

    size: int = 4
    overflow: int = 4
    wait_s: float = 5.0  # for a free connection
    connect_s: float = 3.0
    statement_ms: int = 10_000
    idle_transaction_ms: int = 30_000

    @property
    def of_tenant(self) -> int:
        """Sessions that one tenant has at a time: half of the connections."""
        return max(1, (self.size + self.overflow) // 2)


def listening_url(url: str) -> str:
    """For a connection of asyncpg's own, which waits for notifications."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


class Database:
    """Both engines of a process. Built and closed in one place (`gateway/app.py`, `gateway/control`)."""

    def __init__(self, app_url: str, system_url: str, limits: PoolLimits | None = None) -> None:
        limits = limits or PoolLimits()
        self._shares = _Shares(limits.of_tenant, limits.wait_s)
        self._app = _engine(app_url, limits)
        self._system = _engine(system_url, limits, {"motet.accounts": "all"})
        self._tenant_read = async_sessionmaker(self._app, class_=TenantRead, expire_on_commit=False)
        self._tenant_write = async_sessionmaker(self._app, class_=TenantWrite, expire_on_commit=False)
        self._system_read = async_sessionmaker(self._system, class_=SystemRead, expire_on_commit=False)
        self._system_write = async_sessionmaker(self._system, class_=SystemWrite, expire_on_commit=False)

    @property
    def system_engine(self) -> AsyncEngine:
        """For what needs a raw connection: COPY, advisory locks, the schema revision."""
        return self._system

    @asynccontextmanager
    async def tenant_session(self, tenant: TenantId) -> AsyncIterator[TenantWrite]:
        async with self._shares.one_of(tenant), _transaction(self._tenant_write) as session:
            await _become(session, tenant)
            yield session

    @asynccontextmanager
    async def tenant_reader(self, tenant: TenantId) -> AsyncIterator[TenantRead]:
        async with self._shares.one_of(tenant), _transaction(self._tenant_read, _READ_ONLY) as session:
            await _become(session, tenant)
            yield session

    @asynccontextmanager
    async def tenant_snapshot(self, tenant: TenantId) -> AsyncIterator[TenantRead]:
        """A reader whose statements all see the same moment, for sums that must agree with each other."""
        async with self._shares.one_of(tenant), _transaction(self._tenant_read, _SNAPSHOT) as session:
            await _become(session, tenant)
            yield session

    @asynccontextmanager
    async def system_session(self) -> AsyncIterator[SystemWrite]:
        async with _transaction(self._system_write) as session:
            yield session

    @asynccontextmanager
    async def system_reader(self) -> AsyncIterator[SystemRead]:
        async with _transaction(self._system_read, _READ_ONLY) as session:
            yield session

    async def close(self) -> None:
        await self._app.dispose()
        await self._system.dispose()


class _Shares:
    """Bounds the sessions of each tenant, so that one with many slow statements leaves connections to the
    others. Owned by one event loop."""

    def __init__(self, most: int, wait_s: float) -> None:
        self._most = most
        self._wait_s = wait_s
        self._open: dict[TenantId, asyncio.Semaphore] = {}
        self._users: Counter[TenantId] = Counter()

    @asynccontextmanager
    async def one_of(self, tenant: TenantId) -> AsyncIterator[None]:
        """Raises `Unavailable` when the tenant's own sessions leave it none in time."""
        places = self._open.setdefault(tenant, asyncio.Semaphore(self._most))
        self._users[tenant] += 1
        try:
            try:
                async with asyncio.timeout(self._wait_s):
                    await places.acquire()
            except TimeoutError:
                raise Unavailable("Too many of this tenant's requests use the database. Try again.") from None
            try:
                yield
            finally:
                places.release()
        finally:
            self._users[tenant] -= 1
            if not self._users[tenant]:
                del self._users[tenant], self._open[tenant]


@contextmanager
def database_errors() -> Iterator[None]:
    """A database that can't answer is our fault and passing: 503, never a 401 or 404 (raises
    `Unavailable`)."""
    try:
        yield
    except (InterfaceError, OperationalError, PoolTimeout) as error:
        raise _unavailable(error) from error
    except DBAPIError as error:
        if error.connection_invalidated or _passing(error.orig):
            raise _unavailable(error) from error
        raise
    # SQLAlchemy lets through what is no error of the database's own: a statement that got no answer in time,
    # and whatever COPY raises, which goes by asyncpg alone.
    except (OSError, asyncpg.InterfaceError) as error:
        raise _unavailable(error) from error
    except asyncpg.PostgresError as error:
        if _passing(error):
            raise _unavailable(error) from error
        raise


def _engine(url: str, limits: PoolLimits, more: Mapping[str, str] | None = None) -> AsyncEngine:
    """`more`: settings of the session; accounts of members are hidden from one that doesn't say
    `motet.accounts` (migrations/versions/0052_members.py)."""
    return create_async_engine(
        async_url(url),
        pool_size=limits.size,
        max_overflow=limits.overflow,
        pool_timeout=limits.wait_s,
        pool_recycle=1800,
        pool_pre_ping=True,
        hide_parameters=True,  # of statements that failed: logs would hold what tenants wrote, and hashes
        connect_args={
            "timeout": limits.connect_s,
            "command_timeout": limits.statement_ms / 1000 + 2,
            "server_settings": {
                "application_name": "motet",
                "statement_timeout": str(limits.statement_ms),
                "idle_in_transaction_session_timeout": str(limits.idle_transaction_ms),
                "timezone": "UTC",
                **(more or {}),
            },
        },
    )


@asynccontextmanager
async def _transaction(
    make: async_sessionmaker[_Session], mode: TextClause | None = None
) -> AsyncIterator[_Session]:
    with database_errors():
        async with make() as session, session.begin():
            await session.connection()
            if mode is not None:
                await session.execute(mode)
            yield session


async def look_as_owner(session: TenantRead, owner: TenantId) -> None:
    """From here to its end a reader sees the rows of `owner`, and its own tenant's no more. Only for an owner
    that the database itself named as one that shares with the session's tenant (`gateway/sharing`)."""
    await _become(session, owner)


async def _become(session: TenantRead, tenant: TenantId) -> None:
    await session.execute(text("SELECT set_config('motet.tenant', :tenant, true)"), {"tenant": str(tenant)})


def _passing(error: BaseException | None) -> bool:
    """SQLSTATE classes 08 (connection), 53 (resources), 57 (cancelled, shutting down), 58 (its disk),
    40 (serialization)."""
    state = getattr(error, "sqlstate", None) or ""
    return state[:2] in {"08", "53", "57", "58", "40"}


def _unavailable(error: BaseException) -> Unavailable:
    log.warning("database_unavailable", error=type(error).__name__, reason=str(error)[:300])
    return Unavailable("The database cannot answer now. Try again shortly.")
