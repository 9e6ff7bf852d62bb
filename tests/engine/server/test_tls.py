"""An engine that speaks https, and only to gateways with a certificate."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
from pydantic import SecretStr

from engine.config import EngineSettings
from engine.server.asgi import respond
from engine.server.serve import _Http, listen
from tests.authority import Authority


async def test_it_serves_whoever_its_authority_signed_and_nobody_else(tmp_path: Path) -> None:
    ours = Authority.make(tmp_path, "ours")
    cert, key = ours.issue("replica")
    settings = EngineSettings(
        token=SecretStr("engine-token-of-tests"),
        model=Path("model"),
        tls_cert=cert,
        tls_key=key,
        tls_client_ca=ours.path,
        drain_s=0,
    )

    async def app(scope: object, receive: object, send: object) -> None:
        await respond(send, 200, b"well")  # type: ignore[arg-type]  # all of it is uvicorn's

    server = _Http(app, settings)
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"https://localhost:{listener.getsockname()[1]}/"
        known = ssl.create_default_context(cafile=ours.path)
        known.load_cert_chain(*ours.issue("gateway"))
        for _ in range(500):
            if server.started:
                break
            await asyncio.sleep(0.01)
        async with aiohttp.ClientSession() as session:
            async with session.get(url, ssl=known) as answer:
                assert await answer.read() == b"well"
            for stranger in (ssl.create_default_context(cafile=ours.path), ssl.create_default_context()):
                try:
                    async with session.get(url, ssl=stranger):
                        raise AssertionError("a stranger was served")
                except aiohttp.ClientError:
                    pass
        server.should_exit = True
        await serving
