"""The gateway as one application: its routes on one page, and what lives as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.di import Provide
from litestar.types import ControllerRouterHandler

from gateway import access, health, openapi, problems
from gateway.access import PUBLIC
from gateway.admin_auth import routes as admin_auth
from gateway.admin_ui import routes as admin_ui
from gateway.admin_ui.build import FOLDER, UiBuild
from gateway.aliases import routes as aliases
from gateway.api_keys import routes as api_keys
from gateway.attention import routes as attention
from gateway.audit import routes as audit
from gateway.audit.service import Actor
from gateway.billing.charging import routes as rerating
from gateway.billing.exports import routes as exports
from gateway.billing.periods import routes as periods
from gateway.billing.price_book import routes as price_book
from gateway.billing.statements import routes as statements
from gateway.caches import routes as caches
from gateway.catalog import routes as catalog
from gateway.changes import routes as changes
from gateway.client_address import TrustedProxies
from gateway.config import Settings
from gateway.cors import Cors, origins_of
from gateway.differences import routes as differences
from gateway.draining import Leaving
from gateway.envelope import Envelope, request_id_of
from gateway.events import routes as events
from gateway.inference import routes as inference
from gateway.limits import routes as limits
from gateway.members import routes as members
from gateway.oidc import routes as oidc
from gateway.placement import routes as placement
from gateway.principal import Admin, Principal
from gateway.proofs import routes as proofs
from gateway.public_url import PublicUrl
from gateway.receipts import routes as receipts
from gateway.replicas import routes as replicas
from gateway.retention import routes as retention
from gateway.retirement import routes as retirement
from gateway.rollouts import routes as rollouts
from gateway.services import Services, open_services
from gateway.sharing import routes as sharing
from gateway.store_checks import routes as store_checks
from gateway.tenants import routes as tenants
from gateway.timed_request import TimedRequest
from gateway.traffic import routes as traffic
from gateway.upgrades import routes as upgrades
from gateway.uploads import routes as uploads
from gateway.usage import routes as usage
from gateway.usage.summary import routes as usage_summary
from gateway.webhooks import routes as webhooks

MAX_JSON_BYTES = 1024 * 1024  # of requests that Litestar reads; inference and uploads read their own

AnyRequest = Request[Any, Any, State]


@get("/openapi.json", opt={PUBLIC: True}, summary="This document", media_type=MediaType.JSON)
async def openapi_document(state: State) -> Response[bytes]:
    return Response(state.openapi, media_type=MediaType.JSON)


ROUTES: list[ControllerRouterHandler] = [
    # public
    *health.handlers,
    openapi_document,
    *admin_ui.handlers,
    # tenants; what is about a tenant's own things, also for operators under /api/v1/tenants/{tenant}
    *inference.handlers,
    *catalog.handlers,
    *uploads.handlers,
    *proofs.handlers,
    *differences.handlers,
    *aliases.handlers,
    *rollouts.handlers,
    *retirement.handlers,
    *sharing.handlers,
    *placement.handlers,
    *usage.handlers,
    *usage_summary.handlers,
    *events.handlers,
    *traffic.handlers,
    *receipts.handlers,
    *webhooks.handlers,
    *statements.handlers,
    *exports.handlers,
    *api_keys.handlers,
    *limits.handlers,
    # operators, and members of tenants (roles.py)
    *changes.handlers,
    *admin_auth.handlers,
    *oidc.handlers,
    *tenants.handlers,
    *caches.handlers,
    *members.handlers,
    *audit.handlers,
    *replicas.handlers,
    *upgrades.handlers,
    *retention.handlers,
    *store_checks.handlers,
    *attention.handlers,
    *price_book.handlers,
    *periods.handlers,
    *rerating.handlers,
]


def create_app(settings: Settings) -> Litestar:
    """The application with the layers it runs with in production. Connects when it starts, not here.

    Raises ValueError for a setting that can't be read.
    """
    leaving = Leaving()

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        async with open_services(settings, leaving) as services:
            app.state.services = services
            yield

    public = PublicUrl.parse(settings.public_url)
    app = _assemble(lifespan=[lifespan], openapi_config=None)
    app.state.looks = health.Looks()
    app.state.openapi = openapi_bytes()
    app.state.admin_ui = UiBuild.read(settings.admin_ui_dir or FOLDER, public.prefix)
    app.state.leaving = leaving
    origins = origins_of(settings.cors_origins)
    inner = Cors(app.asgi_handler, origins) if origins else app.asgi_handler
    proxies = TrustedProxies(settings.trusted_proxies, settings.forwarded_header)
    app.asgi_handler = Envelope(inner, leaving, proxies if settings.log_client_address else None)
    return app


def openapi_bytes() -> bytes:
    """The document of all routes; needs no settings, and starts nothing."""
    return openapi.render(_assemble(openapi_config=openapi.CONFIG))


def _assemble(**more: Any) -> Litestar:
    """Built twice: Litestar describes routes only where it also serves pages about them, which we don't
    want."""
    return Litestar(
        ROUTES,
        guards=[access.guard],
        exception_handlers=problems.HANDLERS,
        dependencies={
            "services": Provide(_services, sync_to_thread=False),
            "principal": Provide(_principal, sync_to_thread=False),
            "admin": Provide(_admin, sync_to_thread=False),
            "actor": Provide(_actor, sync_to_thread=False),
        },
        request_class=TimedRequest,
        request_max_body_size=MAX_JSON_BYTES,
        logging_config=None,
        debug=False,
        **more,
    )


def _services(state: State) -> Services:
    found = state.services
    assert isinstance(found, Services)
    return found


def _principal(request: AnyRequest) -> Principal:
    return access.principal_of(request.scope)


def _admin(request: AnyRequest) -> Admin:
    return access.admin_of(request.scope)


def _actor(request: AnyRequest) -> Actor:
    """Whom the audit log names: the account, else the API key."""
    found = request.scope["state"]
    request_id = request_id_of(request.scope)
    if "admin" not in found:
        return Actor(f"key:{found['principal'].key_id}", request_id)
    admin = access.admin_of(request.scope)
    return Actor(f"admin:{admin.email}", request_id, admin.token)
