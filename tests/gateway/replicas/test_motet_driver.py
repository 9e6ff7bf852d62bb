"""What our engine's driver asks, of a replica that only listens."""

from __future__ import annotations

from aiohttp import web

from gateway.replicas.driver import Purge
from gateway.replicas.drivers.motet import CONTROL_TIMEOUT_S, MotetDriver, ReplicaSession

ARTEFACT = "a" * 64


async def test_a_purge_that_has_to_wait_is_answered_before_the_replica_is_given_up() -> None:
    waits_ms: list[int] = []

    async def held(request: web.Request) -> web.Response:
        waits_ms.append(int(request.query["within_ms"]))
        return web.json_response(
            {"code": "adapter_in_use", "detail": "2 requests", "status": 409}, status=409
        )

    app = web.Application()
    app.router.add_delete(f"/internal/adapters/{ARTEFACT}", held)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with ReplicaSession(connect_timeout_s=1, max_connections=2) as session:
            driver = MotetDriver(session, f"http://127.0.0.1:{runner.addresses[0][1]}", "token")
            assert await driver.purge(ARTEFACT, "me") is Purge.HELD
    finally:
        await runner.cleanup()
    assert len(waits_ms) == 1
    assert 0 < waits_ms[0] / 1000 <= CONTROL_TIMEOUT_S - 1
