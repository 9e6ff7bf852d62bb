"""A server that looks like an engine to a router: who may ask, what it holds, a stream of its states."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Engine:
    base_id: str
    base_digest: str | None
    tokens: tuple[str, ...] = ("engine-token-of-tests",)
    host: list[str] = field(default_factory=list)
    url: str = ""
    asked: int = 0
    refused: int = 0
    streams: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False
    ready: bool = True

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Engine]:
        app = web.Application(middlewares=[self._door])
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/internal/state", self._state)
        app.router.add_post("/v1/completions", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        self.url = f"{scheme}://{host}:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.stopped = True
            self.changed.set()
            await runner.cleanup()

    def tell(self) -> None:
        """Something changed."""
        self.changed.set()

    @web.middleware
    async def _door(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked += 1
        if request.headers.get("authorization") not in {f"Bearer {token}" for token in self.tokens}:
            self.refused += 1
            return web.json_response({"title": "no"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("once"):
            return web.Response(body=self._report())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.streams += 1
        while not self.stopped:
            self.changed.clear()
            await response.write(b"id: 1\ndata: " + self._report() + b"\n\n: alive\n\n")
            await self.changed.wait()
        return response

    def _report(self) -> bytes:
        state = {"ready": True, "base_id": self.base_id, "base_digest": self.base_digest}
        stats = {"device": [], "host": self.host, "waiting_tokens": 0, "running": 0, "waiting": 0}
        return json.dumps(state | {"core": {"num_slots": 8}, "stats": stats}).encode()

    async def _answer(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read())
