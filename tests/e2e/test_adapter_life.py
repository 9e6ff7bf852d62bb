"""An adapter's life over HTTP: uploaded, answering, followed by a version, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter

PARTS = ("adapter_config.json", "adapter_model.safetensors")
NAME = f"life-{uuid4().hex[:8]}"  # numbers outlive a deletion, so each run has a name of its own


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path, base_model: str) -> list[Path]:
    base = BaseSpec.from_dir(demo_model_dir, base_model)
    root = tmp_path_factory.mktemp("life")
    recipes = [Recipe(seed, rank=4, targets=["q_proj", "down_proj"], std=0.08) for seed in (11, 12)]
    return [write_adapter(root / str(recipe.seed), base, recipe) for recipe in recipes]


@pytest.fixture(autouse=True)
def _gone_afterwards(acme: httpx.Client) -> Iterator[None]:
    yield
    acme.delete(f"/v1/adapters/{NAME}")


def upload(client: httpx.Client, folder: Path, root: str = "/v1") -> httpx.Response:
    files = {part: (folder / part).read_bytes() for part in PARTS}
    return client.post(f"{root}/adapters/{NAME}/versions", files=files)


def ask(client: httpx.Client, model: str) -> httpx.Response:
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
    return client.post("/v1/completions", json=body)


def text(client: httpx.Client, model: str) -> str:
    answer = ask(client, model)
    assert answer.status_code == 200, answer.text
    said: str = answer.json()["choices"][0]["text"]
    return said


def test_a_version_answers_until_it_is_deleted(acme: httpx.Client, folders: list[Path]) -> None:
    first = upload(acme, folders[0])
    assert first.status_code == 201, first.text
    assert first.url.join(first.headers["location"]).path == f"/v1/adapters/{NAME}/versions/1"
    assert first.json()["aliases"] == ["live"]
    answer = ask(acme, NAME)
    assert answer.headers["x-motet-version"] == "1"
    one = answer.json()["choices"][0]["text"]

    assert upload(acme, folders[1]).json()["version"] == 2
    two = text(acme, NAME)
    assert two != one
    assert (text(acme, f"{NAME}@1"), text(acme, f"{NAME}@2")) == (one, two)

    assert upload(acme, folders[0]).status_code == 200  # that content is version 1 already
    assert text(acme, NAME) == two

    assert acme.delete(f"/v1/adapters/{NAME}/versions/2").json() == {
        "id": f"{NAME}@2",
        "object": "adapter.version.deleted",
        "deleted": True,
    }
    assert ask(acme, f"{NAME}@2").status_code == 404
    assert ask(acme, NAME).status_code == 404
    assert text(acme, f"{NAME}@1") == one
    assert acme.delete(f"/v1/adapters/{NAME}").status_code == 200
    assert ask(acme, f"{NAME}@1").status_code == 404
    assert acme.get(f"/v1/adapters/{NAME}").status_code == 404


def test_versions_are_listed_in_pages(acme: httpx.Client, folders: list[Path]) -> None:
    numbers = [upload(acme, folder).json()["version"] for folder in folders]
    page = acme.get(f"/v1/adapters/{NAME}/versions?limit=1").json()
    assert ([v["version"] for v in page["data"]], page["has_more"]) == ([numbers[1]], True)
    rest = acme.get(f"/v1/adapters/{NAME}/versions", params={"limit": 1, "after": page["next"]}).json()
    assert ([v["version"] for v in rest["data"]], rest["has_more"]) == ([numbers[0]], False)
    names: list[str] = []
    after: dict[str, Any] = {}
    while True:
        listed = acme.get("/v1/adapters", params={"limit": 1, **after}).json()
        names += [adapter["id"] for adapter in listed["data"]]
        if not listed["has_more"]:
            break
        after = {"after": listed["next"]}
    assert names == sorted(names)
    assert {NAME, "pirate", "sentiment-json"} <= set(names)


def test_an_operator_uploads_for_a_tenant(
    admin: httpx.Client, acme: httpx.Client, tenant_ids: dict[str, str], folders: list[Path]
) -> None:
    made = upload(admin, folders[0], f"/api/v1/tenants/{tenant_ids['acme']}")
    assert made.status_code == 201, made.text
    assert acme.get(f"/v1/adapters/{NAME}/versions").json()["data"] == [made.json()]
