"""A replica of our own to measure: `motet engine` on a free port, with adapters made up for the occasion."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from adapters import headers
from adapters.base import BaseSpec
from adapters.digest import artefact_id, content_digest
from adapters.manifest import read_manifest
from adapters.packed import pack
from adapters.store import artefact_path, open_store
from deploy.bench.load import Endpoint
from deploy.bench.random_adapters import Recipe, write_adapter
from deploy.local.children import Child, ChildSpec

OWNER = "bench"
BASE_NAME = "base"
MIXED_RANKS = (8, 16, 32, 64)
READY_S = 300.0
STOP_S = 20.0


@dataclass(frozen=True)
class Replica:
    endpoint: Endpoint
    pid: int
    ready_s: float  # from the start of its process

    def memory_bytes(self) -> int:
        """Resident memory of the server and its core."""
        server = psutil.Process(self.pid)
        return sum(process.memory_info().rss for process in (server, *server.children(recursive=True)))


def write_adapters(model: Path, folder: Path) -> dict[str, Path]:
    """PEFT folders, written once: `mixed0` to `mixed39` of ranks 8, 16, 32 and 64 in turn, and `small0` to
    `small15` of rank 8; all seven linear sites of every layer."""
    base = BaseSpec.from_dir(model, BASE_NAME)
    ranks = {f"mixed{i}": MIXED_RANKS[i % len(MIXED_RANKS)] for i in range(40)}
    ranks |= {f"small{i}": 8 for i in range(16)}
    for seed, (name, rank) in enumerate(ranks.items()):
        if not (folder / name / "adapter_model.safetensors").exists():
            write_adapter(folder / name, base, Recipe(seed=seed, rank=rank, alpha=2 * rank, std=0.01))
    return {name: folder / name for name in ranks}


@contextmanager
def running_replica(
    model: Path, adapters: Mapping[str, Path], folder: Path, *, slots: int, options: Sequence[str] = ()
) -> Iterator[Replica]:
    """Starts a replica with an empty cache and ends it. Raises `RuntimeError` when it doesn't come up."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    artefacts = _fill_store(model, adapters, folder / "store")
    token = secrets.token_hex(16)
    environment = {
        "MOTET_ENGINE_TOKEN": token,
        "MOTET_ENGINE_PORT": "0",
        "MOTET_ENGINE_SLOTS": str(slots),
        "MOTET_BASE_MODEL": str(model),
        "MOTET_BASE_NAME": BASE_NAME,
        "MOTET_STORE_URL": str(folder / "store"),
        "MOTET_ENGINE_CACHE_DIR": str(folder / "cache"),
        "MOTET_JOURNAL_DIR": str(folder / "journal"),
    }
    argv = (sys.executable, "-m", "deploy.cli", "engine", *options)
    began = time.perf_counter()
    child = Child(ChildSpec("engine", argv, folder / "log", environment, stop_signal=signal.SIGTERM))
    try:
        url = f"http://127.0.0.1:{_port(child, folder / 'log')}"
        _wait_ready(child, url, token)
        endpoint = Endpoint(
            "motet",
            f"{url}/v1",
            BASE_NAME,
            {"authorization": f"Bearer {token}", headers.TENANT: OWNER},
            {name: {headers.ARTEFACT: digest, headers.OWNER: OWNER} for name, digest in artefacts.items()},
        )
        yield Replica(endpoint, child.pid, time.perf_counter() - began)
    finally:
        child.stop(STOP_S)


def _fill_store(model: Path, adapters: Mapping[str, Path], folder: Path) -> dict[str, str]:
    """Artefact ids by name."""
    folder.mkdir()
    base, store, artefacts = BaseSpec.from_dir(model, BASE_NAME), open_store(str(folder)), {}
    for name, source in adapters.items():
        weights = source / "adapter_model.safetensors"
        manifest = read_manifest((source / "adapter_config.json").read_bytes(), weights, base)
        artefact = artefact_id(OWNER, content_digest(manifest, weights, base.base_id))
        packed = folder / f"{name}.motet"
        pack(manifest, weights, packed, artefact=artefact, base_id=base.base_id)
        store.put_file(packed, artefact_path(OWNER, artefact))
        packed.unlink()
        artefacts[name] = artefact
    return artefacts


def _port(child: Child, log: Path) -> int:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and child.returncode is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and line.endswith("}") and (event := json.loads(line)).get("port"):
                return int(event["port"])
        time.sleep(0.05)
    raise RuntimeError(f"the replica did not start:\n{child.last_words()}")


def _wait_ready(child: Child, url: str, token: str) -> None:
    until = time.monotonic() + READY_S
    request = urllib.request.Request(  # noqa: S310 - our own replica
        f"{url}/readyz", headers={"authorization": f"Bearer {token}"}
    )
    while time.monotonic() < until and child.returncode is None:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                if answer.status == 200:
                    return
        except urllib.error.HTTPError as error:  # 503 until the core holds its model
            error.close()
        time.sleep(0.02)
    raise RuntimeError(f"the replica did not become ready:\n{child.last_words()}")
