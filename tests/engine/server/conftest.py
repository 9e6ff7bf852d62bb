"""A real replica for the session: server and core as processes, the demo model in bfloat16, two adapters."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.base import BaseSpec
from adapters.digest import artefact_id, content_digest
from adapters.manifest import read_manifest
from adapters.packed import pack
from adapters.store import artefact_path, open_store
from tests.engine.server.running_engine import (
    BASE_NAME,
    DEMO,
    OWNER,
    EngineServer,
    is_running,
    launch,
    read_events,
    settings_of,
    wait_for,
)


@pytest.fixture(scope="session")
def adapter_store(
    demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """A folder store with two demo adapters, and their artefact ids."""
    folder = tmp_path_factory.mktemp("store")
    base = BaseSpec.from_dir(demo_model_dir, BASE_NAME)
    store = open_store(str(folder))
    artefacts = {}
    for name in ("pirate", "shout"):
        weights = DEMO / name / "adapter_model.safetensors"
        manifest = read_manifest((DEMO / name / "adapter_config.json").read_bytes(), weights, base)
        artefact = artefact_id(OWNER, content_digest(manifest, weights, base.base_id))
        packed = folder / f"{name}.motet"
        pack(manifest, weights, packed, artefact=artefact, base_id=base.base_id)
        store.put_file(packed, artefact_path(OWNER, artefact))
        artefacts[name] = artefact
    return folder, artefacts


@pytest.fixture(scope="session")
def start_engine(
    demo_model_dir: Path, adapter_store: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., EngineServer]]:
    """Starts a replica that is ready; all are ended with the session, and none leaves its core behind."""
    started: list[EngineServer] = []

    def start(**variables: str) -> EngineServer:
        folder = tmp_path_factory.mktemp("engine")
        environment = settings_of(demo_model_dir, adapter_store[0], folder) | variables
        process = launch(environment, folder)
        listening = wait_for(lambda: [e for e in read_events(folder / "log") if e["event"] == "listening"])[0]
        url = f"http://127.0.0.1:{listening['port']}"
        server = EngineServer(url, process, listening["core_pid"], folder, adapter_store[1])
        started.append(server)
        wait_for(lambda: server.get("/readyz").status_code == 200)
        return server

    yield start
    for server in started:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
        assert not is_running(server.core_pid)


@pytest.fixture(scope="session")
def engine_server(start_engine: Callable[..., EngineServer]) -> EngineServer:
    return start_engine()
