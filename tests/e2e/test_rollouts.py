"""A rollout on the real platform: forward on real traffic, and back when a worse version is tried."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from deploy.cli import build_app
from tests.alias_moves import PARTS
from tests.fuzzing import fresh_key

WAIT_S = 60.0
PROMPT = "Once upon a time"

Motet = Callable[..., Any]


@pytest.fixture
def motet(base_url: str, tmp_path: Path) -> Motet:
    """Runs a command with a key, and gives what it printed as JSON."""

    def run(key: str, *arguments: str) -> Any:
        words = (*arguments, "--json")
        said = {"MOTET_HOME": str(tmp_path), "MOTET_URL": base_url, "MOTET_API_KEY": key}
        done = CliRunner().invoke(build_app(words), words, env=said, prog_name="motet")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


def ask(client: httpx.Client, model: str) -> tuple[int, str]:
    """(version, text)."""
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 6}
    session = {"x-motet-session": uuid4().hex}  # each is a conversation of its own
    answer = client.post("/v1/chat/completions", json={**body, "temperature": 0}, headers=session)
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-motet-queue-ms"]) >= 0
    assert answer.headers["x-motet-tier"] in ("device", "host", "disk", "store")
    assert int(answer.headers["x-motet-load-ms"]) >= 0
    text: str = answer.json()["choices"][0]["message"]["content"]
    return int(answer.headers["x-motet-version"]), text


def test_a_rollout_goes_forward_and_a_worse_version_back(
    base_url: str,
    admin: httpx.Client,
    demo_model_dir: Path,
    base_model: str,
    tmp_path: Path,
    motet: Motet,
) -> None:
    base, name = BaseSpec.from_dir(demo_model_dir, base_model), f"canary-{uuid4().hex[:8]}"
    recipes = [Recipe(seed, rank=4, targets=["q_proj", "down_proj"], std=0.08) for seed in (31, 32, 33)]
    folders = [write_adapter(tmp_path / str(recipe.seed), base, recipe) for recipe in recipes]
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=base_url, headers=headers, timeout=120) as client:
            for folder in folders:
                files = {part: (folder / part).read_bytes() for part in PARTS}
                assert client.post(f"/v1/adapters/{name}/versions", files=files).status_code == 201
            assert motet(key, "adapters", "aliases", "set", name, "live", "1")["weights"] == {"1": 100}

            steps = ("--step", "40:0:2", "--step", "100:0:2")
            begun = motet(key, "adapters", "rollout", "start", name, "2", *steps)
            ended = _until_ended(client, name, begun["id"])
            assert (ended["state"], ended["reason"]) == ("promoted", None)
            assert [event["event"] for event in ended["events"]][-1] == "promote"
            assert ask(client, name)[0] == 2

            good = ask(client, f"{name}@2")[1]
            exam = {"prompts": [{"input": PROMPT, "answer": good}], "minimum_share": 1.0}
            (tmp_path / "plan.json").write_text(json.dumps({"acceptance": exam}))
            plan = ("--plan", str(tmp_path / "plan.json"))
            worse = motet(key, "adapters", "rollout", "start", name, "3", *plan)
            back = _until_ended(client, name, worse["id"])
            assert (back["state"], back["reason"]["rule"]) == ("rolled_back", "acceptance")
            assert back["new"]["requests"] == 0
            assert ask(client, name)[0] == 2
            shown = motet(key, "adapters", "aliases", "list", name)
            assert [(alias["alias"], alias["weights"]) for alias in shown] == [("live", {"2": 100})]


def _until_ended(client: httpx.Client, name: str, rollout: str) -> dict[str, Any]:
    """Asks for answers, as users do, until the rollout is at its end."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        ask(client, name)
        answer = client.get(f"/v1/adapters/{name}/rollouts/{rollout}")
        found: dict[str, Any] = answer.json()
        if found["state"] not in ("running", "paused"):
            return found
        time.sleep(0.1)
    raise AssertionError(f"it has not ended: {found}")
