"""Is this process alive, can it answer, would a chat succeed; and what it has counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.params import FromQuery
from prometheus_client import Gauge
from sqlalchemy import select, text
from sqlalchemy.exc import ProgrammingError

import migrations
from gateway.access import PUBLIC
from gateway.credentials import same_secret
from gateway.draining import Leaving
from gateway.errors import ApiError, Unauthenticated, Unavailable
from gateway.models import SchemaSupport
from gateway.redis import PlatformKeys, redis_errors
from gateway.services import Services
from gateway.shared_look import SharedLook
from gateway.telemetry import METRICS_CONTENT_TYPE, render_metrics

log = structlog.get_logger(__name__)

CHECK_S: Final = 3.0
DEEP_CHECK_S: Final = 60.0
DEEP_FRESH_S: Final = 1.0  # a completion each second and worker is the most that strangers can cause
_WRITTEN: Final = PlatformKeys("health").key("written")
READY = Gauge(
    "motet_gateway_ready",
    "1 when the last readiness check of any worker passed.",
    multiprocess_mode="mostrecent",
)


class Unfit(Unavailable):
    """The database answers, and can't be used by this code."""


class Checked(msgspec.Struct, frozen=True):
    """`outcome` is "ok", or why not; `away`: it was not reached, or did not answer in time."""

    outcome: str
    away: bool = False


class Readiness(msgspec.Struct, frozen=True):
    ready: bool
    checks: dict[str, str]  # "ok", or why not


class Looks:
    """What anyone may ask for, each looked at once at a time. One a worker."""

    def __init__(self) -> None:
        self.shallow: SharedLook[dict[str, Checked]] = SharedLook()
        self.chat: SharedLook[Checked] = SharedLook(DEEP_FRESH_S)
        self.metrics: SharedLook[bytes] = SharedLook()


@get("/healthz", opt={PUBLIC: True}, media_type=MediaType.TEXT, summary="This process lives")
async def healthz() -> str:
    return "ok\n"


@get("/readyz", opt={PUBLIC: True}, summary="This process can answer; with deep=1, a chat would succeed")
async def readyz(
    services: NamedDependency[Services], state: State, deep: FromQuery[bool] = False
) -> Response[Readiness]:
    looks: Looks = state.looks
    checks = dict(await looks.shallow(lambda: _shallow(services)))
    leaving: Leaving = state.leaving
    if leaving.begun:
        checks["process"] = Checked("It is shutting down.")
    if deep:
        checks["chat"] = await looks.chat(lambda: _check(services.probe, DEEP_CHECK_S))
    ready = all(each.outcome == "ok" or _goes_on(name, each, services) for name, each in checks.items())
    READY.set(ready)
    told = {name: each.outcome for name, each in checks.items()}
    return Response(Readiness(ready, told), status_code=200 if ready else 503)


@get("/metrics", opt={PUBLIC: True}, summary="Prometheus metrics of all workers")
async def metrics(
    request: Request[object, object, State], services: NamedDependency[Services], state: State
) -> Response[bytes]:
    """Public unless `MOTET_METRICS_TOKEN` is set: labels name routes and outcomes, never tenants or keys."""
    wanted = services.settings.metrics_token
    if wanted is not None and not same_secret(
        request.headers.get("authorization", ""), f"Bearer {wanted.get_secret_value()}"
    ):
        raise Unauthenticated("The metrics token is missing or wrong.", code="invalid_metrics_token")
    looks: Looks = state.looks
    body = await looks.metrics(lambda: asyncio.to_thread(render_metrics))
    return Response(body, headers={"content-type": METRICS_CONTENT_TYPE})


def _goes_on(name: str, checked: Checked, services: Services) -> bool:
    """What is away is said, but is no reason for a balancer to send requests elsewhere: all workers lack it
    at once. Without Redis each lets in its share of the limits (docs/decisions/0042); without PostgreSQL
    known keys go on, as long as there are any (docs/decisions/0076)."""
    if not checked.away:
        return False
    return name == "redis" or (name == "database" and services.authenticator.goes_on_alone())


async def _shallow(services: Services) -> dict[str, Checked]:
    return {
        "database": await _check(lambda: _database(services), CHECK_S),
        "redis": await _check(lambda: _redis(services), CHECK_S),
    }


async def _check(look: Callable[[], Awaitable[None]], limit_s: float) -> Checked:
    try:
        async with asyncio.timeout(limit_s):
            await look()
    except Unfit as error:
        return Checked(error.message)
    except ApiError as error:
        return Checked(error.message, away=True)
    except TimeoutError:
        return Checked(f"no answer within {limit_s:g} s", away=True)
    return Checked("ok")


async def _database(services: Services) -> None:
    """Answers, and has the tables that this code was written for. Raises `Unavailable`, `Unfit` for the
    latter.

    A newer schema is as good until one of its migrations took away what this code needs
    (docs/decisions/0060), so that what runs stays ready while a release is rolled out.
    """
    async with services.db.system_reader() as session:
        try:
            found = await session.scalar(text("SELECT version_num FROM alembic_version"))
        except ProgrammingError as error:  # not for a connection that broke: then they may be there
            raise Unfit("The database has no tables yet. Run the migrations.") from error
    if found == migrations.head():
        return
    if found is None or migrations.knows(found):
        raise Unfit(
            f"The database is at revision {found}, this code needs {migrations.head()}. Run the migrations."
        )
    async with services.db.system_reader() as session:
        oldest = await session.scalar(select(SchemaSupport.oldest_release))
    if oldest is None or not migrations.knows(oldest):
        raise Unfit(
            f"The database is at revision {found}, which serves releases from {oldest} on; this code knows"
            f" {migrations.head()}. Run a newer release."
        )


async def _redis(services: Services) -> None:
    """Takes a write: one that is full, or a replica, answers a ping and can't count. Raises `Unavailable`."""
    try:
        with redis_errors():
            await services.redis.set(_WRITTEN, 1, ex=60)
    except Unavailable as error:
        raise Unavailable("Redis does not answer, or takes no writes (full, or a replica).") from error


handlers = [healthz, readyz, metrics]
