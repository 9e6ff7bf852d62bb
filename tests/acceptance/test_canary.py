"""Versions that were made bad on purpose are rolled back by themselves, within their budget of requests, and
say why: the demo adapter `sentiment-json` with noise in its weights, and with weights that overflow, under
load."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import torch
from safetensors.torch import load_file, save_file

from tests.acceptance.conftest import ROOT, Record, times
from tests.alias_moves import PARTS, upload
from tests.fuzzing import fresh_key

DEMO = ROOT / "deploy" / "local" / "demo" / "sentiment-json"
CLIENTS = 6
NOISE = 20.0
"""Times the standard deviation of each tensor."""
HUGE = 1e30
AT_RISK = 20
STEPS = [{"weight": 20, "hold_s": 2, "min_requests": 5}, {"weight": 60, "hold_s": 2, "min_requests": 5}]
WAIT_S = 400.0
ALIAS = "prod"
TOLD = (
    f"`sentiment-json` with noise of {NOISE:g} standard deviations in every tensor, rolled out into an alias "
    "in steps of 20 and 60 percent with its golden prompts as acceptance prompts, while "
    f"{CLIENTS} clients ask without a pause; then, without acceptance prompts, with weights that overflow "
    "(where the proof lets such a version in at all); then with noise of a thousandth, which changes no "
    f"answer. Budget: {AT_RISK} requests of each bad version."
)


@dataclass
class Clients:
    """What they heard."""

    answered: Counter[int] = field(default_factory=Counter)  # by version
    unavailable: int = 0
    errors: list[str] = field(default_factory=list)


async def test_canary(base_url: str, admin: httpx.Client, tmp_path: Path, record: Record) -> None:
    goldens = json.loads((DEMO / "golden.json").read_text())
    prompts = [{"input": each["user"], "answer": each["text"]} for each in goldens]
    name, heard = f"canary-{uuid4().hex[:8]}", Clients()
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=300) as client:
            await upload(client, name, DEMO)
            made = await client.put(f"/v1/adapters/{name}/aliases/{ALIAS}", json={"version": 1})
            assert made.status_code == 201, made.text
            running = [asyncio.create_task(_ask_on(client, name, goldens, heard)) for _ in range(CLIENTS)]
            noisy = [
                await _tried(client, name, _noisy(tmp_path / str(seed), seed=seed), prompts, heard)
                for seed in range(times(5, 2))
            ]
            overflowing = await _tried(client, name, _scaled(tmp_path / "huge"), None, heard)
            good = await _tried(client, name, _noisy(tmp_path / "good", seed=0, noise=0.001), prompts, heard)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    record.write(TOLD, _figures(noisy, overflowing, good, heard), _reports([*noisy, overflowing, good]))
    assert heard.errors == []
    assert all(each["state"] == "rolled_back" and each["rule"] == "acceptance" for each in noisy)
    assert overflowing["state"] in ("rolled_back", "refused")
    assert all(each["met"] <= AT_RISK for each in (*noisy, overflowing))
    assert good["state"] == "promoted"


def _figures(
    noisy: list[dict[str, Any]], overflowing: dict[str, Any], good: dict[str, Any], heard: Clients
) -> dict[str, object]:
    return {
        "noisy versions, rolled back by themselves": f"{len(noisy)}, "
        f"{sum(each['state'] == 'rolled_back' for each in noisy)}",
        "by rule": dict(Counter(each["rule"] for each in noisy)),
        "most requests that a noisy version met": max(each["met"] for each in noisy),
        "the overflowing version": f"{overflowing['state']}, by rule {overflowing['rule']}",
        "requests that it met": overflowing["met"],
        "the good version": f"{good['state']}, after it met {good['met']}",
        "answers meanwhile, other errors": f"{heard.answered.total()}, {len(heard.errors)}",
        "longest rollout of a bad version (s)": max(each["took_s"] for each in (*noisy, overflowing)),
    }


def _reports(tried: list[dict[str, Any]]) -> str:
    """What the rollouts themselves say, one of a kind."""
    reasons = {each["rule"]: each["reason"] for each in tried if each["reason"] is not None}
    return "\n".join(f"- {json.dumps(reason, ensure_ascii=False)}" for reason in reasons.values())


def _noisy(folder: Path, *, seed: int, noise: float = NOISE) -> Path:
    """The demo adapter with noise in each tensor."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {
        key: value.float() + noise * value.float().std() * torch.randn(value.shape, generator=draw)
        for key, value in load_file(DEMO / PARTS[1]).items()
    }
    return _written(folder, tensors)


def _scaled(folder: Path) -> Path:
    """The same with values that are finite, and products that are not."""
    return _written(folder, {key: value.float() * HUGE for key, value in load_file(DEMO / PARTS[1]).items()})


def _written(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    save_file({key: value.to(torch.bfloat16) for key, value in tensors.items()}, folder / PARTS[1])
    (folder / PARTS[0]).write_bytes((DEMO / PARTS[0]).read_bytes())
    return folder


async def _tried(
    client: httpx.AsyncClient,
    name: str,
    folder: Path,
    prompts: list[dict[str, str]] | None,
    heard: Clients,
) -> dict[str, Any]:
    """Uploaded, and rolled out into the alias that the clients ask for."""
    files = {part: (folder / part).read_bytes() for part in PARTS}
    answer = await client.post(f"/v1/adapters/{name}/versions", files=files)
    if answer.status_code == 422:
        refusal = answer.json()["error"]
        return {"state": "refused", "reason": refusal, "rule": refusal["code"], "met": 0, "took_s": 0.0}
    assert answer.status_code == 201, answer.text
    number, began = answer.json()["version"], time.monotonic()
    wanted = {
        "alias": ALIAS,
        "to": number,
        "steps": STEPS,
        "rollback_on": {"max_requests_at_risk": AT_RISK},
        "acceptance": None if prompts is None else {"prompts": prompts},
    }
    before = heard.unavailable
    started = await client.post(f"/v1/adapters/{name}/rollouts", json=wanted)
    assert started.status_code == 201, started.text
    place = f"/v1/adapters/{name}/rollouts/{started.json()['id']}"
    while (found := (await client.get(place)).json())["state"] == "running":
        assert time.monotonic() < began + WAIT_S, found
        await asyncio.sleep(0.2)
    took_s = time.monotonic() - began
    await asyncio.sleep(2.0)  # what was in flight ends
    return {
        "state": found["state"],
        "reason": found["reason"],
        "rule": (found["reason"] or {}).get("rule"),
        "met": heard.answered[number] + heard.unavailable - before,
        "took_s": round(took_s, 1),
    }


async def _ask_on(
    client: httpx.AsyncClient, name: str, goldens: list[dict[str, Any]], heard: Clients
) -> None:
    number = 0
    while True:
        number += 1
        message = {"role": "user", "content": goldens[number % len(goldens)]["user"]}
        body = {"model": f"{name}@{ALIAS}", "messages": [message], "max_tokens": 16, "temperature": 0}
        headers = {"x-motet-session": uuid4().hex}  # each is a conversation of its own
        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        if answer.status_code == 200:
            heard.answered[int(answer.headers["x-motet-version"])] += 1
        elif answer.status_code == 503 and answer.json()["error"]["code"] in (
            "adapter_unavailable",
            "replica_failed",
        ):
            heard.unavailable += 1
        else:
            heard.errors.append(answer.text)
