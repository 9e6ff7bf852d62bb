"""Limits over HTTP and over all workers: never more than the limit, and a refusal says when to come back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any
from uuid import uuid4

import httpx

LIMIT = 1_000
PARALLEL = 200
MAX_TOKENS = 90


def test_200_parallel_requests_never_pass_a_thousand_tokens_a_minute(
    base_url: str, admin: httpx.Client, base_model: str
) -> None:
    tenant = admin.post("/api/v1/tenants", json={"name": f"limits-{uuid4().hex[:12]}"}).json()["id"]
    wanted = {"name": "tpm", "scopes": ["inference"], "tokens_per_minute": LIMIT}
    key = admin.post(f"/api/v1/tenants/{tenant}/keys", json=wanted).json()["secret"]
    body = {"model": base_model, "prompt": "Once upon a time", "max_tokens": MAX_TOKENS, "ignore_eos": True}
    began = time.monotonic()
    answers = asyncio.run(_all_at_once(base_url, key, body))
    spent_s = time.monotonic() - began
    admin.patch(f"/api/v1/tenants/{tenant}", json={"status": "suspended"})
    assert set(Counter(answer.status_code for answer in answers)) == {200, 429}
    used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status_code == 200)
    assert 0 < used <= LIMIT + LIMIT * spent_s / 60  # what flowed back meanwhile
    for answer in answers:
        if answer.status_code == 429:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(answer.headers["retry-after-ms"]) > 0


async def _all_at_once(base_url: str, key: str, body: dict[str, Any]) -> list[httpx.Response]:
    async with httpx.AsyncClient(
        base_url=base_url,
        headers={"authorization": f"Bearer {key}"},
        timeout=120,
        limits=httpx.Limits(max_connections=PARALLEL),
    ) as client:
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(PARALLEL)))
