"""What stands around every answer: headers, and a log line that names nobody unless it is told to."""

from __future__ import annotations

from typing import Any

import pytest
from litestar.testing import TestClient
from litestar.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from gateway.client_address import TrustedProxies
from gateway.draining import Leaving
from gateway.envelope import Envelope

PROXIES = TrustedProxies("10.0.0.0/8")


async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def passed(envelope: Envelope, peer: str = "10.0.0.1") -> dict[bytes, bytes]:
    """The headers of an answer to a client that comes through a proxy."""
    told: list[Message] = []
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"x-forwarded-for", b"198.51.100.7")],
        "client": (peer, 1),
    }

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    async def send(message: Message) -> None:
        told.append(message)

    await envelope(scope, receive, send)  # type: ignore[arg-type]  # a scope needs more than this app does
    return dict(told[0]["headers"])  # type: ignore[typeddict-item]


async def test_no_address_is_logged_by_default() -> None:
    with capture_logs() as lines:
        await passed(Envelope(app))
    (line,) = lines
    assert "client" not in line
    assert "198.51.100.7" not in str(line)


@pytest.mark.parametrize(("peer", "client"), [("10.0.0.1", "198.51.100.7"), ("203.0.113.9", "203.0.113.9")])
async def test_where_it_is_asked_for_it_is_the_clients(peer: str, client: str) -> None:
    with capture_logs() as lines:
        await passed(Envelope(app, logged_through=PROXIES), peer)
    assert lines[0]["client"] == client


async def test_a_worker_on_its_way_out_ends_each_connection_with_its_answer() -> None:
    leaving = Leaving()
    envelope = Envelope(app, leaving)
    assert b"connection" not in await passed(envelope)
    leaving.begun = True
    assert (await passed(envelope))[b"connection"] == b"close"


def test_a_worker_on_its_way_out_is_not_ready(client: TestClient[Any]) -> None:
    leaving = client.app.state.leaving
    assert client.get("/readyz").status_code == 200
    leaving.begun = True
    try:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert "shutting down" in answer.json()["checks"]["process"]
        assert client.get("/healthz").status_code == 200
    finally:
        leaving.begun = False
