"""The least that a gateway can be: uvicorn, one ASGI handler, one client, bytes through with every frame
found. What Motet costs beyond this is what it does. `python -m deploy.bench.gateway.relay PORT UPSTREAM`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send


@asgi("/v1/chat/completions", copy_scope=False)
async def chat(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body, more = body + message["body"], message["more_body"]
    state = scope["litestar_app"].state
    headers = {"content-type": "application/json"}
    async with state.session.post(
        f"{state.upstream}/v1/chat/completions", data=body, headers=headers
    ) as answer:
        kind = answer.headers["content-type"].encode()
        start = [(b"content-type", kind)]
        if not kind.startswith(b"text/event-stream"):
            whole = await answer.read()
            start.append((b"content-length", str(len(whole)).encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": start})
            await send({"type": "http.response.body", "body": whole, "more_body": False})
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": start})
        rest = b""
        async for chunk in answer.content.iter_any():
            *frames, rest = (rest + chunk).split(b"\n\n")
            if frames:
                whole = b"\n\n".join(frames) + b"\n\n"
                await send({"type": "http.response.body", "body": whole, "more_body": True})
        await send({"type": "http.response.body", "body": rest, "more_body": False})


def main(port: int, upstream: str) -> None:
    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            app.state.session, app.state.upstream = session, upstream
            yield

    app = Litestar([chat], lifespan=[lifespan], openapi_config=None, logging_config=None)
    uvicorn.run(
        app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_config=None
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
