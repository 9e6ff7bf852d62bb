"""What a replica's answer to a proof comes to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from deploy.local.services import free_port
from gateway.replicas.driver import NoVerdict, UpstreamFailed
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession

ARTEFACT = "a" * 64


@pytest.fixture
async def session() -> AsyncIterator[ReplicaSession]:
    async with ReplicaSession(connect_timeout_s=1, max_connections=2) as opened:
        yield opened


async def asked(session: ReplicaSession, answer: web.Response) -> object:
    async def prove(request: web.Request) -> web.Response:
        assert await request.json() == {"artefact": ARTEFACT, "owner": "me", "longest": True}
        return answer

    app = web.Application()
    app.router.add_post("/internal/proofs", prove)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        driver = MotetDriver(session, f"http://127.0.0.1:{runner.addresses[0][1]}", "token")
        return await driver.prove(ARTEFACT, "me", True)
    finally:
        await runner.cleanup()


async def test_a_503_says_nothing_of_the_adapter(session: ReplicaSession) -> None:
    problem = web.json_response({"code": "store_unavailable", "detail": "later", "status": 503}, status=503)
    with pytest.raises(NoVerdict, match="later") as told:
        await asked(session, problem)
    assert (told.value.code, told.value.blames) == ("store_unavailable", False)


async def test_a_core_that_ended_within_the_proof_broke_off(session: ReplicaSession) -> None:
    problem = web.json_response({"code": "core_lost", "detail": "gone", "status": 503}, status=503)
    with pytest.raises(UpstreamFailed, match="gone") as told:
        await asked(session, problem)
    assert not isinstance(told.value, NoVerdict)
    assert (told.value.sent, told.value.blames) == (True, True)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, "{}"),
        (404, "{}"),
        (200, "hello"),
        (200, '{"artefact": "a", "base_digest": "b", "checks": []}'),  # no verdict in it
        (200, '{"artefact": "a", "base_digest": "b", "passed": "yes", "checks": []}'),
        (200, '{"artefact": "a", "base_digest": "b", "passed": true, "checks": [{"name": "Loads!"}]}'),
    ],
)
async def test_what_is_no_verdict_is_a_failure_of_the_replica(
    session: ReplicaSession, status: int, body: str
) -> None:
    with pytest.raises(UpstreamFailed) as told:
        await asked(session, web.Response(status=status, text=body, content_type="application/json"))
    assert not isinstance(told.value, NoVerdict)


async def test_one_that_can_not_be_reached_was_sent_nothing(session: ReplicaSession) -> None:
    driver = MotetDriver(session, f"http://127.0.0.1:{free_port()}", "token")
    with pytest.raises(UpstreamFailed) as told:
        await driver.prove(ARTEFACT, "me", False)
    assert not told.value.sent
