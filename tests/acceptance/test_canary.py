"""A version that was made bad on purpose is rolled back by itself, within its budget of requests, and says
why: the demo adapter `sentiment-json` with noise in its weights, under load."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import torch
from safetensors.torch import load_file, save_file

from tests.acceptance.conftest import ROOT, Record, is_short, times
from tests.alias_moves import PARTS, upload
from tests.fuzzing import fresh_key

DEMO = ROOT / "deploy" / "local" / "demo" / "sentiment-json"
CLIENTS = 6
NOISE = 20.0
"""Times the standard deviation of each tensor."""
AT_RISK = 20
STEPS = [{"weight": 20, "hold_s": 2, "min_requests": 5}, {"weight": 60, "hold_s": 2, "min_requests": 5}]
WAIT_S = 400.0


async def test_canary(base_url: str, admin: httpx.Client, tmp_path: Path, record: Record) -> None:
    goldens = json.loads((DEMO / "golden.json").read_text())
    prompts = [{"input": each["user"], "answer": each["text"]} for each in goldens]
    name = f"canary-{uuid4().hex[:8]}"
    rounds: list[dict[str, Any]] = []
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=300) as client:
            await upload(client, name, DEMO)
            answered: Counter[int] = Counter()
            errors: list[str] = []
            running = [
                asyncio.create_task(_ask_on(client, name, goldens, answered, errors)) for _ in range(CLIENTS)
            ]
            for number in range(times(5, 2)):
                bad = _noisy(tmp_path / str(number), seed=number)
                rounds.append(await _tried(client, name, bad, prompts, answered))
            good = await _tried(
                client, name, _noisy(tmp_path / "good", seed=0, noise=0.001), prompts, answered
            )
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    record.write(
        f"`sentiment-json` with noise of {NOISE:g} standard deviations in every tensor, rolled out into "
        "`live` in steps of 20 and 60 percent with its golden prompts as acceptance prompts, while "
        f"{CLIENTS} clients ask without a pause; {len(rounds)} times with other noise, then once with noise "
        f"of a thousandth, which changes no answer. Budget: {AT_RISK} requests.",
        {
            "bad versions, rolled back by themselves": f"{len(rounds)}, "
            f"{sum(each['state'] == 'rolled_back' for each in rounds)}",
            "rules": dict(Counter(each["rule"] for each in rounds)),
            "most requests that a bad version answered": max(each["answered"] for each in rounds),
            "longest from the start of a rollout to its end (s)": max(each["took_s"] for each in rounds),
            "the good version": f"{good['state']}, after it answered {good['answered']}",
            "answers meanwhile, errors": f"{answered.total()}, {len(errors)}",
        },
        "What the first report says: " + json.dumps(rounds[0]["reason"], ensure_ascii=False),
    )
    assert errors == []
    assert all(each["state"] == "rolled_back" and each["reason"]["message"] for each in rounds)
    assert all(each["answered"] <= AT_RISK for each in rounds)
    assert good["state"] == "promoted"
    assert is_short() or len(rounds) >= 5


def _noisy(folder: Path, *, seed: int, noise: float = NOISE) -> Path:
    """The demo adapter with noise in each tensor."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(seed)
    tensors = load_file(DEMO / PARTS[1])
    made = {
        key: (value.float() + noise * value.float().std() * torch.randn(value.shape, generator=draw)).to(
            value.dtype
        )
        for key, value in tensors.items()
    }
    save_file(made, folder / PARTS[1])
    (folder / PARTS[0]).write_bytes((DEMO / PARTS[0]).read_bytes())
    return folder


async def _tried(
    client: httpx.AsyncClient,
    name: str,
    folder: Path,
    prompts: list[dict[str, str]],
    answered: Counter[int],
) -> dict[str, Any]:
    """Uploaded, `live` put back where it was, then rolled out."""
    live = (await client.get(f"/v1/adapters/{name}/aliases/live")).json()["version"]
    made = await upload(client, name, folder)
    back = await client.put(f"/v1/adapters/{name}/aliases/live", json={"version": live})
    assert back.status_code == 200, back.text
    await asyncio.sleep(1.0)  # what met it between the two is at its end
    before, began = answered[made["version"]], time.monotonic()
    wanted = {
        "to": made["version"],
        "steps": STEPS,
        "rollback_on": {"max_requests_at_risk": AT_RISK},
        "acceptance": {"prompts": prompts},
    }
    started = await client.post(f"/v1/adapters/{name}/rollouts", json=wanted)
    assert started.status_code == 201, started.text
    place = f"/v1/adapters/{name}/rollouts/{started.json()['id']}"
    while (found := (await client.get(place)).json())["state"] == "running":
        assert time.monotonic() < began + WAIT_S, found
        await asyncio.sleep(0.2)
    took_s = time.monotonic() - began
    await asyncio.sleep(1.0)
    return {
        "state": found["state"],
        "reason": found["reason"],
        "rule": (found["reason"] or {}).get("rule"),
        "answered": answered[made["version"]] - before,
        "took_s": round(took_s, 1),
    }


async def _ask_on(
    client: httpx.AsyncClient,
    name: str,
    goldens: list[dict[str, Any]],
    answered: Counter[int],
    errors: list[str],
) -> None:
    number = 0
    while True:
        number += 1
        golden = goldens[number % len(goldens)]
        body = {"model": name, "messages": [{"role": "user", "content": golden["user"]}], "max_tokens": 16}
        answer = await client.post(
            "/v1/chat/completions",
            json={**body, "temperature": 0},
            headers={"x-motet-session": uuid4().hex},
        )
        if answer.status_code != 200:
            errors.append(answer.text)
        else:
            answered[int(answer.headers["x-motet-version"])] += 1
