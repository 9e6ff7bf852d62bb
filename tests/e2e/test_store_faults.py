"""Objects that vanish or rot in the store: who is resident goes on, who is cold is told, and it heals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.base import BaseSpec
from adapters.store import artefact_path
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.churn import PARTS
from tests.running_platform import RunningPlatform

NAME = "fragile"
HEALS_S = 30.0


@pytest.fixture
def stored(
    acme: httpx.Client,
    tenant_ids: dict[str, str],
    running_platform: RunningPlatform,
    demo_model_dir: Path,
    base_model: str,
    tmp_path: Path,
) -> Iterator[tuple[str, Path]]:
    """An uploaded adapter's artefact, and its file in the store."""
    folder = write_adapter(tmp_path / NAME, BaseSpec.from_dir(demo_model_dir, base_model), Recipe(seed=11))
    files = {part: (folder / part).read_bytes() for part in PARTS}
    answer = acme.post(f"/v1/adapters/{NAME}/versions", files=files)
    assert answer.status_code == 201, answer.text
    artefact = answer.json()["artefact"]
    yield artefact, running_platform.home / "store" / artefact_path(tenant_ids["acme"], artefact)
    assert acme.delete(f"/v1/adapters/{NAME}").status_code < 300


@pytest.mark.parametrize("fault", ["removed", "rotten", "cut"])
def test_a_faulty_object_hurts_its_own_cold_requests_alone(
    fault: str, stored: tuple[str, Path], acme: httpx.Client, engine: httpx.Client, tenant_ids: dict[str, str]
) -> None:
    artefact, file = stored
    right = _ask(acme).json()["choices"][0]["text"]
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.unlink()
    if fault != "removed":
        file.write_bytes(
            whole[:middle] + (b"" if fault == "cut" else bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        )
    assert _ask(acme).json()["choices"][0]["text"] == right  # resident: nothing reads the store

    _make_cold(engine, artefact, tenant_ids["acme"])
    refused = _ask(acme)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "adapter_unavailable")
    assert refused.headers["retry-after"]
    assert _ask(acme, "pirate").status_code == 200

    file.write_bytes(whole)
    until = time.monotonic() + HEALS_S
    while (answer := _ask(acme)).status_code != 200:
        assert time.monotonic() < until, answer.text
        time.sleep(0.5)
    assert answer.json()["choices"][0]["text"] == right


def _make_cold(engine: httpx.Client, artefact: str, owner: str) -> None:
    assert engine.delete(f"/internal/adapters/{artefact}", params={"owner": owner}).status_code == 202
    until = time.monotonic() + 10
    while artefact in _stats(engine)["host"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.5)  # a thread of its own drops the disk copy


def _stats(engine: httpx.Client) -> dict[str, Any]:
    stats: dict[str, Any] = engine.get("/internal/state", params={"once": 1}).json()["stats"]
    return stats


def _ask(client: httpx.Client, model: str = NAME) -> httpx.Response:
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
    return client.post("/v1/completions", json=body)
