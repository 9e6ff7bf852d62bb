"""Two thousand adapters, uploaded and proved, asked for by Zipf's law over two replicas of 32 slots: no wrong
answer. And a catalog of 10,000, whose calls don't wait for its length."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

import httpx
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from migrations import async_url
from tests.acceptance.conftest import Record, is_short, seconds, times
from tests.churn import PARTS, Answer, Question
from tests.fuzzing import fresh_key
from tests.running_platform import RunningPlatform

REPLICAS, SLOTS = 2, 32
TENANTS = 20
UPLOADS = 4  # at a time
STREAMS = 32
EXPONENT = 1.0
PROMPT = "Once upon a time there was"
MAX_TOKENS = 8
ROWS = 10_000
CALLS = 200
MOST_MS = 50.0
READY_S = 120.0
ANALYZED_S = 180.0


@dataclass(frozen=True)
class Uploaded:
    """One adapter, and the client of its tenant."""

    client: httpx.AsyncClient
    name: str


@dataclass
class Crowd:
    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def test_two_thousand(demo_model_dir: Path, record: Record) -> None:
    asyncio.run(_run(demo_model_dir, record))


async def _run(model: Path, record: Record) -> None:
    number, run_s = times(2_000, 40), seconds("TWO_THOUSAND", times(600, 15))
    with tempfile.TemporaryDirectory(prefix="motet-many-", ignore_cleanup_errors=True) as home:
        arguments = ("--no-demo", "--replicas", str(REPLICAS), "--slots", str(SLOTS))
        platform = RunningPlatform(Path(home), model, *arguments)
        await asyncio.to_thread(platform.start)
        try:
            demo = platform.demo()
            async with _tenants(demo) as clients:
                calls = await _catalog(demo, clients[0], times(ROWS, 1_000), times(CALLS, 20))
                base = BaseSpec.from_dir(model, demo["base_model"])
                began = time.monotonic()
                uploaded = await _upload(clients, base, Path(home) / "made", number)
                upload_s = time.monotonic() - began
                alone = [await _ask(each) for each in uploaded]
                before = await _tiers(demo)
                crowd = await _crowd(uploaded, alone, time.monotonic() + run_s)
                await asyncio.sleep(5.0)  # until the ledger has them all
                tiers = await _tiers(demo) - before
        finally:
            await asyncio.to_thread(platform.stop)
    _write(record, len(uploaded), upload_s, alone, crowd, tiers, calls)
    assert len(uploaded) == number
    assert crowd.errors == []
    assert crowd.wrong == []
    assert crowd.answers > number / 4
    assert len(set(alone)) > 0.95 * len(alone), "answers that tell adapters apart"
    if not is_short():
        assert {name: p95 for name, p95 in calls.items() if p95 > MOST_MS} == {}


def _write(
    record: Record,
    uploaded: int,
    upload_s: float,
    alone: Sequence[Answer],
    crowd: Crowd,
    tiers: Counter[str],
    calls: dict[str, float],
) -> None:
    asked = sum(tiers.values())
    record.write(
        f"Adapters of rank 1, each of random factors, uploaded by the API and proved, of {TENANTS} tenants; "
        f"then {STREAMS} clients that ask by Zipf's law (exponent {EXPONENT:g}) for {MAX_TOKENS} greedy "
        f"tokens over {REPLICAS} replicas with {SLOTS} slots each. Each answer is compared with the one that "
        "the same artefact gave alone, before the crowd. Calls of the catalog are timed one by one on the "
        f"idle platform, in a tenant with {ROWS:,} adapters whose rows were inserted.",
        {
            "adapters uploaded and proved": uploaded,
            "seconds that took": round(upload_s),
            "distinct answers alone": f"{len(set(alone))} of {len(alone)}",
            "answers in the crowd": crowd.answers,
            "wrong answers": len(crowd.wrong),
            "errors": len(crowd.errors),
            "attempts by the tier in which they found their adapter": ", ".join(
                f"{tier} {count} ({count / max(1, asked):.1%})" for tier, count in tiers.most_common()
            ),
            **{f"{name}, ms (p95)": f"{p95:.1f}" for name, p95 in calls.items()},
        },
        "\n".join(f"- {line}" for line in [*crowd.wrong[:20], *crowd.errors[:20]]),
    )


@asynccontextmanager
async def _tenants(demo: dict[str, Any]) -> AsyncIterator[list[httpx.AsyncClient]]:
    url = str(demo["base_url"]).removesuffix("/").removesuffix("/v1")
    operator = {"authorization": f"Bearer {demo['admin']['token']}"}
    with httpx.Client(base_url=url, headers=operator, timeout=60) as admin, ExitStack() as keys:
        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(TENANTS):
                headers = {"authorization": f"Bearer {keys.enter_context(fresh_key(admin))}"}
                client = httpx.AsyncClient(base_url=url, headers=headers, timeout=300)
                clients.append(await stack.enter_async_context(client))
            yield clients


async def _upload(
    clients: Sequence[httpx.AsyncClient], base: BaseSpec, folder: Path, number: int
) -> list[Uploaded]:
    """In their order; each waits until its proof is over."""
    places = asyncio.Semaphore(UPLOADS)

    async def one(seed: int) -> Uploaded:
        uploaded = Uploaded(clients[seed % len(clients)], f"tiny-{seed}")
        async with places:
            recipe = Recipe(seed, rank=1, targets=("q_proj", "v_proj", "down_proj"), alpha=8, std=0.06)
            made = await asyncio.to_thread(write_adapter, folder / uploaded.name, base, recipe)
            files = {part: (made / part).read_bytes() for part in PARTS}
            url = f"/v1/adapters/{uploaded.name}/versions"
            answer = await uploaded.client.post(url, files=files)
            assert answer.status_code in (201, 202), answer.text
            await _until_ready(uploaded)
        return uploaded

    return list(await asyncio.gather(*(one(seed) for seed in range(number))))


async def _until_ready(uploaded: Uploaded) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        version = (await uploaded.client.get(f"/v1/adapters/{uploaded.name}/versions/1")).json()
        if version["state"] == "ready":
            return
        assert version["state"] in ("uploaded", "proving"), version
        await asyncio.sleep(0.2)
    raise AssertionError(f"{uploaded.name} was not proved in time")


async def _ask(uploaded: Uploaded) -> Answer:
    body = Question(uploaded.name, PROMPT, MAX_TOKENS).body(stream=False)
    answer = await uploaded.client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return tuple(answer.json()["choices"][0]["token_ids"])


async def _crowd(uploaded: Sequence[Uploaded], alone: Sequence[Answer], until: float) -> Crowd:
    crowd = Crowd()
    weights = list(accumulate(1 / (rank + 1) ** EXPONENT for rank in range(len(uploaded))))
    order = list(range(len(uploaded)))
    random.Random(5).shuffle(order)  # the popular are of all tenants, and of any age

    async def client(seed: int) -> None:
        draw = random.Random(seed)
        while time.monotonic() < until:
            (place,) = draw.choices(order, cum_weights=weights)
            try:
                answer = await _ask(uploaded[place])
            except (httpx.HTTPError, AssertionError) as error:
                crowd.errors.append(f"{uploaded[place].name}: {error!r}")
                continue
            crowd.answers += 1
            if answer != alone[place]:
                crowd.wrong.append(f"{uploaded[place].name}: {answer}, alone {alone[place]}")

    await asyncio.gather(*(client(seed) for seed in range(STREAMS)))
    return crowd


async def _tiers(demo: dict[str, Any]) -> Counter[str]:
    """Attempts of tenants in the ledger, by the tier in which they found their adapter."""
    query = sa.text(
        "SELECT tier, count(*) FROM usage_ledger"
        " WHERE artefact IS NOT NULL AND purpose = 'tenant' AND source = 'engine' GROUP BY tier"
    )
    async with _connected(demo) as connection:
        return Counter({str(tier): int(count) for tier, count in await connection.execute(query)})


_INSERT = (
    """INSERT INTO adapters (id, tenant_id, base_id, name, last_number)
       SELECT gen_random_uuid(), :tenant, :base_id, 'row-' || lpad(n::text, 6, '0'), 1
       FROM generate_series(1, :rows) n""",
    """INSERT INTO adapter_versions
         (id, tenant_id, adapter_id, number, artefact, content_digest, state, manifest, num_bytes)
       SELECT gen_random_uuid(), tenant_id, id, 1, encode(sha256(id::text::bytea), 'hex'),
         encode(sha256(name::bytea), 'hex'), 'ready',
         '{"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}', 1
       FROM adapters WHERE tenant_id = :tenant AND base_id = :base_id AND :rows > 0""",
    """INSERT INTO aliases (adapter_id, name, tenant_id, version)
       SELECT id, 'live', tenant_id, 1 FROM adapters
       WHERE tenant_id = :tenant AND base_id = :base_id AND :rows > 0""",
)


_NOT_ANALYZED = sa.text(
    "SELECT count(*) FROM pg_stat_user_tables WHERE relname IN ('adapters', 'adapter_versions', 'aliases')"
    " AND (last_autoanalyze IS NULL OR n_mod_since_analyze > 500)"
)
"""Rows that came one by one would have been counted by then, as the server does each minute."""


async def _catalog(
    demo: dict[str, Any], client: httpx.AsyncClient, rows: int, calls: int
) -> dict[str, float]:
    """Milliseconds (p95) of each call in a tenant with so many adapters."""
    url = str(client.base_url)
    operator = {"authorization": f"Bearer {demo['admin']['token']}"}
    with httpx.Client(base_url=url, headers=operator, timeout=60) as admin:
        tenant, key = _tenant(admin)
        await _insert(demo, tenant, rows)
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as asking:
            middle = f"row-{rows // 2:06d}"
            asked = {
                "first page of adapters": "/v1/adapters?limit=50",
                "a page of 200 from the middle": f"/v1/adapters?limit=200&after={middle}",
                "one adapter": f"/v1/adapters/{middle}",
                "versions of one": f"/v1/adapters/{middle}/versions",
                "one version": f"/v1/adapters/{middle}/versions/1",
                "placement of one": f"/v1/adapters/{middle}/placement",
                "models, a thousand of them": "/v1/models",
                "one model": f"/v1/models/{middle}",
            }
            return {name: await _p95(asking, path, calls) for name, path in asked.items()}


async def _p95(client: httpx.AsyncClient, path: str, calls: int) -> float:
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        answer = await client.get(path)
        took.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.text
    return quantiles(took, n=20, method="inclusive")[-1]


async def _insert(demo: dict[str, Any], tenant: str, rows: int) -> None:
    async with _connected(demo) as connection:
        base_id = await connection.scalar(sa.text("SELECT base_id FROM bases"))
        for statement in _INSERT:
            given = {"tenant": tenant, "base_id": base_id, "rows": rows}
            named = {name: value for name, value in given.items() if f":{name}" in statement}
            await connection.execute(sa.text(statement), named)
    deadline = time.monotonic() + ANALYZED_S
    while time.monotonic() < deadline:
        async with _connected(demo) as connection:
            if await connection.scalar(_NOT_ANALYZED) == 0:
                return
        await asyncio.sleep(2.0)
    raise AssertionError("the server took no statistics of the new rows")


def _tenant(admin: httpx.Client) -> tuple[str, str]:
    """A tenant and its key."""
    tenant = admin.post("/api/v1/tenants", json={"name": f"rows-{uuid4().hex[:12]}"}).json()["id"]
    wanted = {"name": "rows", "scopes": ["inference", "adapters:read"]}
    key = admin.post(f"/api/v1/tenants/{tenant}/keys", json=wanted).json()["secret"]
    return str(tenant), str(key)


@asynccontextmanager
async def _connected(demo: dict[str, Any]) -> AsyncIterator[Any]:
    engine = create_async_engine(async_url(demo["database_url"]))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()
