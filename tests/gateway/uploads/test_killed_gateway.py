"""Real gateway processes and the command line's own sending: killed at 99 %, both go on where they were."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import psutil
import pytest

from gateway.catalog.parts import WEIGHTS_PART
from gateway.command.api import Api
from gateway.command.resumable import Patience, Told
from gateway.command.upload_state import UploadState
from gateway.command.uploading import Wanted, files_of, upload
from gateway.db import Database
from gateway.serve import environment
from gateway.usage.drain import drain_dead
from gateway.usage.watermark import forget_drained
from tests.gateway.uploads.conftest import Bench
from tests.s3_server import free_ports

PROGRAM = """
import sys
from gateway.config import Settings
from gateway.serve import serve
from gateway.telemetry import configure_logging

configure_logging()
serve(Settings(), "127.0.0.1", int(sys.argv[1]), 1)
"""


class Died(Exception):
    """The client's process, as far as its state on disk can tell."""


class KillableGateway:
    def __init__(self, variables: Mapping[str, str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._variables = variables
        self._port = port
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(self._port)],
                env={**os.environ, **self._variables},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """All its processes at once, without a word."""
        if self._process is None:
            return
        parent = psutil.Process(self._process.pid)
        for each in [parent, *parent.children(recursive=True)]:
            each.kill()
        self._process.wait()
        self._process = None


@pytest.fixture
async def killable(bench: Bench, db: Database, tmp_path: Path) -> AsyncIterator[KillableGateway]:
    """Over the same services and base as the gateway in this process, with a home of its own."""
    moved = {"home": tmp_path, "journal_dir": tmp_path / "journal", "store_url": f"file://{tmp_path}/store"}
    settings = bench.services.settings.model_copy(update=moved)
    made = KillableGateway(dict(environment(settings)), free_ports(1)[0], tmp_path / "gateway.log")
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.kill)
    await drain_dead(
        db, settings.journal_dir
    )  # else its workers stand in the way of all that wait for journals
    await forget_drained(db, settings.journal_dir)


def test_an_upload_killed_at_99_percent_goes_on(
    bench: Bench, killable: KillableGateway, adapter: Path, tmp_path: Path
) -> None:
    size = (adapter / WEIGHTS_PART).stat().st_size
    api = Api(killable.url, bench.headers["authorization"].removeprefix("Bearer "))
    state = UploadState(tmp_path / "state", api.url)
    patience = Patience(give_up_s=120, chunk_bytes=size * 99 // 100)
    waited: list[str] = []

    def send(name: str, when_nearly_there: Callable[[], None]) -> list[int]:
        """How far the tensors were, each time that somebody watching was told."""
        seen: list[int] = []

        def at(file: str, num_bytes: int) -> None:
            if file == WEIGHTS_PART:
                seen.append(num_bytes)
                if num_bytes == patience.chunk_bytes and len(seen) < 3:
                    when_nearly_there()

        wanted = Wanted(name, files_of(adapter))
        made = upload(api, "/v1", wanted, state, Told(at, waited.append), patience)
        assert (made["id"], made["state"]) == (f"{name}@1", "uploaded")  # no replica is there to prove it
        return seen

    def kill_the_gateway() -> None:
        killable.kill()
        killable.start()

    # It comes back while the client waits: nothing of the 99 % is sent again.
    assert send("a", kill_the_gateway) == [0, patience.chunk_bytes, patience.chunk_bytes, size]
    assert any("can't be reached" in why for why in waited)

    def die() -> None:
        killable.kill()
        raise Died

    # Both die: the next start of the client finds its upload in the gateway that was started anew.
    with pytest.raises(Died):
        send("b", die)
    killable.start()
    assert send("b", lambda: None) == [patience.chunk_bytes, size]
    assert list((tmp_path / "state").iterdir()) == []
    assert list((tmp_path / "uploads" / "open").iterdir()) == []
