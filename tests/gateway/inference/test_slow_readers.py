"""Clients that stop reading: what is held for each is bounded all the way to the engine, and when their time
is over the engine stops, and they are billed for what it made."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from gateway.http_protocol import BoundedHttp, ConnectionLimits
from gateway.inference.client import ClientPatience
from gateway.inference.ending import drained
from gateway.sockets import UNREAD_BYTES, UNSENT_BYTES
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import SEND_BUFFER_BYTES, Upstream

NUM_READERS = 64
WORD_BYTES = 16 * 1024
PATIENCE_S = 1.5  # 60 s in production
NUM_WORDS = 1_000  # 16 MB a stream
KERNEL = 2
"""A socket's buffer takes twice what is asked for, for the kernel's own book-keeping (socket(7))."""

HIGH_WATER_BYTES = 64 * 1024  # of the gateway's own buffer of a connection, and one block of frames more
MOST_BYTES = (
    KERNEL * (SEND_BUFFER_BYTES + UNREAD_BYTES + UNSENT_BYTES) + 4 * HIGH_WATER_BYTES + 64 * 1024 * KERNEL
)


async def test_what_nobody_reads_is_made_no_further(
    make_worker: Callable[..., Awaitable[Worker]], upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "limits", ConnectionLimits(write_timeout_s=PATIENCE_S))
    patience = ClientPatience(write_timeout_s=PATIENCE_S)
    worker = await make_worker(upstream, capacity=NUM_READERS, client=patience)
    upstream.script.words = ["x" * WORD_BYTES] * NUM_WORDS
    with ExitStack() as stack:
        for _ in range(NUM_READERS):
            stack.callback((await _silent(worker)).close)
        await until(lambda: len(upstream.seen) == NUM_READERS, within_s=30)
        held = [
            connection.transport.get_write_buffer_size()
            for connection in worker.server.server_state.connections
        ]
        await until(lambda: not worker.server.server_state.tasks, within_s=30)
    await drained()
    events = {str(event.request_id): event for event in worker.events()}
    for seen in upstream.seen.values():
        assert seen.generated * WORD_BYTES <= MOST_BYTES
        event = events[seen.request]
        assert (event.outcome, seen.outcome) == ("aborted", "aborted")
        assert event.billed_completion_tokens == event.completion_tokens <= seen.generated
        assert event.completion_tokens > 0
    assert all(size <= 4 * HIGH_WATER_BYTES for size in held)
    await worker.settled()


async def _silent(worker: Worker) -> socket.socket:
    """A client that asks for a stream and reads nothing of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", int(worker.url.rsplit(":", 1)[1])))
    body = json.dumps({"model": "pirate", "messages": [{"role": "user", "content": "Hi"}], "stream": True})
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    await loop.sock_sendall(client, (head + body).encode())
    return client
