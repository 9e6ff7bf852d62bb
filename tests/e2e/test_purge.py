"""Deleted by mistake and brought back; purged, and no byte of it is left on any disk or replica."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.running_platform import RunningPlatform

PARTS = ("adapter_config.json", "adapter_model.safetensors")
WITHIN_S = 60.0
MARKER = b"".join(bytes((low, 0x3C)) for low in os.urandom(48))
"""Weights of about a hundredth, as bf16, that no other file has."""


@pytest.fixture
def marked(tmp_path: Path, demo_model_dir: Path, base_model: str) -> Path:
    """An adapter with the marker among its weights."""
    base = BaseSpec.from_dir(demo_model_dir, base_model)
    folder = write_adapter(tmp_path / "marked", base, Recipe(5, rank=4, targets=["q_proj"], std=0.05))
    weights = folder / PARTS[1]
    whole = weights.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")  # of the first tensor's values
    weights.write_bytes(whole[:start] + MARKER + whole[start + len(MARKER) :])
    return folder


def places_of(marker: bytes, home: Path) -> set[str]:
    """Files below the platform's home that hold these bytes: store, caches, spools, logs, database."""
    return {
        str(file.relative_to(home))
        for file in home.rglob("*")
        if file.is_file() and not file.is_symlink() and _holds(file, marker)
    }


def _holds(file: Path, marker: bytes) -> bool:
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped.find(marker) >= 0
    except (ValueError, FileNotFoundError):  # empty, or gone meanwhile
        return False


def ask(client: httpx.Client, model: str) -> httpx.Response:
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
    return client.post("/v1/completions", json=body)


def until_purged(client: httpx.Client, place: str, found: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + WITHIN_S
    while found["state"] == "purging":
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
        found = client.get(f"{place}/purge").json()
    return found


def test_no_byte_is_left_and_until_then_it_can_be_brought_back(
    acme: httpx.Client,
    engine: httpx.Client,
    running_platform: RunningPlatform,
    tenant_ids: dict[str, str],
    marked: Path,
) -> None:
    name, home = f"mark-{uuid4().hex[:8]}", running_platform.home
    place = f"/v1/adapters/{name}/versions/1"
    files = {part: (marked / part).read_bytes() for part in PARTS}
    made = acme.post(f"/v1/adapters/{name}/versions", files=files)
    assert made.status_code == 201, made.text
    artefact = made.json()["artefact"]
    first = ask(acme, name).json()["choices"][0]["text"]
    assert len(places_of(MARKER, home)) >= 2  # in the store, and a replica's cache

    assert acme.delete(f"/v1/adapters/{name}").status_code == 200
    assert ask(acme, name).status_code == 404
    (retired,) = acme.get(f"/v1/adapters/{name}/versions?state=retired").json()["data"]
    assert (retired["state"], retired["purges_at"] > retired["retired_at"]) == ("retired", True)
    back = acme.post(f"/v1/adapters/{name}/restore", json={"aliases": True}).json()
    assert (back["aliases"], back["gone"]) == ({"live": 1}, [])
    assert ask(acme, name).json()["choices"][0]["text"] == first

    refused = acme.post(f"{place}/purge", json={"confirm": name})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "confirmation_mismatch")
    asked = acme.post(f"{place}/purge", json={"confirm": f"{name}@1"})
    assert asked.status_code in (200, 202), asked.text
    assert ask(acme, f"{name}@1").status_code == 404
    done = until_purged(acme, place, asked.json())
    (version,) = done["versions"]
    assert (version["state"], version["artefact"]) == ("purged", artefact)
    looks = engine.get(f"/internal/adapters/{artefact}", params={"owner": tenant_ids["acme"]})
    states = {each["state"] for each in version["replicas"]}
    assert "purged" in states
    assert states <= {"purged", "gone"}  # other tests' replicas have left the platform
    assert looks.status_code == 404
    deadline = time.monotonic() + 10
    while artefact in _shown(engine):  # its picture of itself is a second old at most
        assert time.monotonic() < deadline
        time.sleep(0.1)
    while left := places_of(MARKER, home):
        assert time.monotonic() < deadline, left
        time.sleep(0.3)
    assert acme.post(f"{place}/restore", json={}).json()["error"]["code"] == "adapter_purged"
    assert acme.post(f"{place}/purge", json={"confirm": f"{name}@1"}).status_code == 200


def _shown(engine: httpx.Client) -> set[str]:
    state = engine.get("/internal/state", params={"once": 1}).json()["stats"]
    return {*state["host"], *state["device"]}
