"""A replica that stops: what it can't finish in time is its own failure."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from tests.engine.server.running_engine import EngineServer
from tests.engine.server.test_replica import open_stream


def test_what_outlasts_the_drain_is_nobodys_to_pay_for(start_engine: Callable[..., EngineServer]) -> None:
    """As an abort it would be the client's doing, and billed."""
    server = start_engine(MOTET_ENGINE_DRAIN_S="0.2")
    with open_stream(server, 1) as chunks:
        server.process.send_signal(signal.SIGTERM)
        rest = b"".join(chunks)
    error, trailer = rest.rstrip().split(b"\n\n")[-2:]
    assert json.loads(error.removeprefix(b"data: "))["error"]["message"] == "The engine is shutting down."
    assert b"[DONE]" not in rest
    assert server.process.wait(10) == 0
    written = b"".join(path.read_bytes() for path in (server.folder / "journal").glob("*.jsonl"))
    (line,) = map(json.loads, written.splitlines())
    told = json.loads(trailer.removeprefix(b": motet "))
    assert told["outcome"] == line["outcome"] == "core_failed"
    assert told["usage"]["completion"] == line["completion"] > 0
