"""The demo adapters under one name, re-uploaded and moved to and fro under load: not one token of a version
that the alias had left, prompts in the prefix cache included."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests.acceptance.conftest import ROOT, Record, times
from tests.alias_moves import Move, Traffic, answers_of, under_load, upload
from tests.churn import PROMPTS, long_prompt
from tests.fuzzing import fresh_key

DEMO = ROOT / "deploy" / "local" / "demo"
CLIENTS = 24
TOKENS = 16
TOLD = (
    "The demo adapters uploaded one after the other under one name, then `live` pointed to each of them in "
    f"turn, while {CLIENTS} clients ask greedily (streams and whole answers, prompts that lie in the prefix "
    "cache) of {workers} workers and {replicas} replica(s). Token ids of each answer are compared with those "
    "of the version that `x-motet-version` names, alone; and that version with what the alias could be "
    "between the request's first and last byte."
)


async def test_alias_moves(
    base_url: str, admin: httpx.Client, platform: dict[str, Any], record: Record
) -> None:
    folders = sorted(path for path in DEMO.iterdir() if path.is_dir())
    prompts = [*PROMPTS, "This place is great!", long_prompt(5, 60), long_prompt(6, 240)]
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=CLIENTS + 4)
        async with httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=300, limits=limits
        ) as client:
            alone = await _alone(client, folders, prompts)
            distinct = [len({alone[number][prompt] for number in alone}) for prompt in prompts]
            name = f"moves-{uuid4().hex[:8]}"
            await upload(client, name, folders[0])
            traffic = Traffic(name, alone, TOKENS, [Move(1, time.monotonic(), time.monotonic())])

            async def put(version: int) -> None:
                answer = await client.put(f"/v1/adapters/{name}/aliases/live", json={"version": version})
                assert answer.status_code == 200, answer.text

            again = [(n, partial(upload, client, name, folders[n - 1])) for n in range(2, len(folders) + 1)]
            moved = [(1 + n % len(folders), partial(put, 1 + n % len(folders))) for n in range(times(60, 12))]
            began = time.monotonic()
            await under_load(client, traffic, prompts, [*again, *moved], clients=CLIENTS, every=2 * CLIENTS)
            spent_s = time.monotonic() - began
    took = [move.returned - move.began for move in traffic.moves[1 + len(again) :]]
    record.write(
        TOLD.format(workers=len(platform["gateway"]["worker_pids"]), replicas=len(platform["engines"])),
        {
            "seconds of load": round(spent_s),
            "re-uploads, moves by `PUT`": f"{len(again)}, {len(moved)}",
            "answers": len(traffic.seen),
            "answers by version": {n: sum(one.version == n for one in traffic.seen) for n in alone},
            "wrong answers, or of a version that the alias had left": len(traffic.wrong),
            "errors": len(traffic.errors),
            "in flight over a move, and ended on the version before": traffic.num_across,
            "distinct answers of the versions, by prompt": distinct,
            "slowest `PUT` (ms)": round(max(took) * 1000),
        },
        "\n".join(f"- {line}" for line in [*traffic.wrong[:20], *traffic.errors[:20]]),
    )
    assert traffic.errors == []
    assert traffic.wrong == []
    assert min(distinct) > 1
    assert traffic.num_across > 0


async def _alone(
    client: httpx.AsyncClient, folders: list[Path], prompts: list[str]
) -> dict[int, dict[str, tuple[int, ...]]]:
    """By the number that each will have."""
    name = f"alone-{uuid4().hex[:8]}"
    for folder in folders:
        await upload(client, name, folder)
    numbers = range(1, len(folders) + 1)
    return {n: await answers_of(client, f"{name}@{n}", prompts, TOKENS) for n in numbers}
