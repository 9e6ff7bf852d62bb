"""What the control process says of itself over HTTP: that it lives, and its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.config import Settings
from gateway.credentials import same_secret
from gateway.telemetry import METRICS_CONTENT_TYPE, render_metrics


class CanNotListen(RuntimeError):
    """The message is one line for the person at the terminal."""


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[None]:
    """`/healthz` and `/metrics` while the block runs. Raises `CanNotListen`."""
    runner = web.AppRunner(_application(settings), access_log=None, handle_signals=False)
    await runner.setup()
    host, port = settings.control_host, settings.control_port
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise CanNotListen(f"can't listen on {host}:{port}: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()


def _application(settings: Settings) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        """Open unless `MOTET_METRICS_TOKEN` is set, like the gateway's."""
        wanted = settings.metrics_token
        given = request.headers.get("authorization", "")
        if wanted is not None and not same_secret(given, f"Bearer {wanted.get_secret_value()}"):
            return web.Response(status=401, headers={"www-authenticate": "Bearer"})
        return web.Response(body=render_metrics(), headers={"content-type": METRICS_CONTENT_TYPE})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics)])
    return application
