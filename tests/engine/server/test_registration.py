"""A replica that registers itself with a gateway, over and over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from engine.config import EngineSettings
from engine.core.protocol import Ready
from engine.server import registration
from engine.server.registration import keep_registered

TOKEN = "engine-token-of-tests"
READY = Ready("b" * 64, "d" * 64, 128, 100, [0], 8, 16, 4, 8, "journal")


class Gateway:
    """Answers with what `answers` holds, one after the other."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.heard: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.enough = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_put("/api/v1/replica-registration", self._register)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _register(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers["authorization"])
        self.heard.append(await request.json())
        status, body = self.answers.pop(0)
        if not self.answers:
            self.answers.append((status, body))
            self.enough.set()
        return web.Response(status=status, body=json.dumps(body), content_type="application/json")


def settings(**more: Any) -> EngineSettings:
    return EngineSettings(token=SecretStr(TOKEN), model=Path("model"), **more)


async def test_it_says_what_it_is_again_and_again_whatever_it_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "BEAT_S", 0.01)
    answers: list[tuple[int, Any]] = [
        (500, None),
        (401, {}),
        (200, {"heartbeat_s": "soon"}),
        (200, []),
        (200, {"heartbeat_s": 3600}),
    ]
    gateway = Gateway(*answers)
    async with gateway.running() as url:
        ready = asyncio.get_running_loop().create_future()
        own = settings(
            register_url=url + "/",
            register_token=SecretStr("registration-token"),
            advertise_url="http://replica:8090/",
            pools="long, batch",
        )
        task = asyncio.create_task(keep_registered(own, ready))
        await asyncio.sleep(0.05)
        assert gateway.heard == [], "not before it holds its model"
        ready.set_result(READY)
        await asyncio.wait_for(gateway.enough.wait(), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert gateway.tokens == {"Bearer registration-token"}
    assert gateway.heard == [
        {
            "url": "http://replica:8090",
            "base_id": "b" * 64,
            "base_digest": "d" * 64,
            "token": TOKEN,
            "pools": ["long", "batch"],
        }
    ] * len(answers)


@pytest.mark.parametrize(
    "half",
    [
        {"register_url": "http://gateway"},
        {"register_url": "http://gateway", "register_token": SecretStr("x")},
        {"tls_cert": Path("cert.pem")},
        {"tls_client_ca": Path("ca.pem")},
    ],
)
def test_half_a_setting_is_refused(half: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**half)
