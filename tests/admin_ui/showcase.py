"""What pictures of the admin UI show: the demo platform after a while of use, made through the public API.
Every number on a page comes of a request that was answered here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from deploy.bench.load import Answer, Ask, Endpoint, run_open
from deploy.bench.prompts import words
from deploy.local.demo_tenants import FILES
from tests.admin_ui.places import CONFIG, WEIGHTS, Furnished, furnish, until_ready
from tests.running_platform import RunningPlatform

NAME = "initech"
OTHERS = ("hooli", "umbrella", "wayne-enterprises")
REQUESTS, RATE, TOKENS = 90, 2.0, 24
PRICES = (("base", "0.15", "0.075", "0.6"), ("any_adapter", "0.2", "0.1", "0.8"))
LONGEST_PROOF_S = 180.0


def show(platform: RunningPlatform) -> Furnished:
    """A tenant with much, others with less, and a load over all of them."""
    demo = platform.demo()
    root = demo["base_url"].removesuffix("/v1")
    headers = {"authorization": f"Bearer {demo['admin']['token']}"}
    with httpx.Client(base_url=root, headers=headers, timeout=LONGEST_PROOF_S) as admin:
        _prices(admin)
        shown = furnish(admin, NAME)
        _keys(admin, shown)
        _versions(admin, shown)
        for number, name in enumerate(OTHERS):
            made = _made(admin.post("/api/v1/tenants", json={"name": name, "share_weight": number + 1}))
            if number == 1:
                reason = {"reason": "invoice of October unpaid"}
                _made(admin.post(f"/api/v1/tenants/{made['id']}/suspend", json=reason))
        limits = {"requests_per_minute": 600, "tokens_per_minute": 120_000, "max_parallel": 8}
        _made(admin.patch(f"/api/v1/tenants/{shown.tenant}/limits", json=limits))
        rollout = {"to": 2, "steps": [{"weight": 25, "hold_s": 3_600}, {"weight": 100}]}
        made = admin.post(f"/api/v1/tenants/{shown.tenant}/adapters/{shown.adapter}/rollouts", json=rollout)
        shown = replace(shown, rollout=_made(made)["id"])
        _load(demo, shown)
        _refused(admin, shown)
        return _explained(admin, shown)


def _prices(admin: httpx.Client) -> None:
    rows = [
        {"model": model, "input": new, "cached_input": cached, "output": out}
        | {"answer_input": "0.01", "answer_output": "0.05"}
        for model, new, cached, out in PRICES
    ]
    began = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    book = {"currency": "USD", "note": "list prices", "prices": rows, "retroactive": True}
    _made(admin.post("/api/v1/price-books", json=book | {"effective_from": began.isoformat()}))


def _keys(admin: httpx.Client, shown: Furnished) -> None:
    keys = f"/api/v1/tenants/{shown.tenant}/keys"
    soon = (datetime.now(UTC) + timedelta(days=9)).isoformat()
    _made(admin.post(keys, json={"name": "nightly-batch", "service_class": "batch", "expires_at": soon}))
    rotated = _made(admin.post(keys, json={"name": "mobile-app", "service_class": "interactive"}))
    _made(admin.post(f"{keys}/{rotated['key']['id']}/rotate", json={"overlap_s": 86_400}))
    old = _made(admin.post(keys, json={"name": "prototype"}))
    admin.delete(f"{keys}/{old['key']['id']}").raise_for_status()


def _versions(admin: httpx.Client, shown: Furnished) -> None:
    """A second adapter, and one that is refused."""
    adapters = f"/api/v1/tenants/{shown.tenant}/adapters"
    files = {part: (FILES / "triage" / part).read_bytes() for part in (CONFIG, WEIGHTS)}
    _made(admin.post(f"{adapters}/triage/versions", files=files))
    until_ready(admin, f"{adapters}/triage/versions/1")
    broken = {CONFIG: b'{"peft_type": "LORA", "r": 4096}', WEIGHTS: b"\0" * 64}
    refused = admin.post(f"{adapters}/experiment/versions", files=broken)
    assert 400 <= refused.status_code < 500, refused.text


def _load(demo: dict[str, Any], shown: Furnished) -> None:
    """An open loop over every tenant's models, most of it the shown one's."""
    tenants = [(each["api_key"], each["adapters"]) for each in demo["tenants"]]
    tenants += [(shown.secret, (shown.adapter, "triage"))] * 3
    endpoints = [
        (
            Endpoint("platform", demo["base_url"], demo["base_model"], {"authorization": f"Bearer {key}"}),
            model,
        )
        for key, adapters in tenants
        for model in (*adapters, demo["base_model"])
    ]
    calls = [
        (endpoint, Ask(model, words(number, 8 + number % 40), TOKENS + number % 40))
        for number in range(REQUESTS)
        for endpoint, model in [endpoints[number % len(endpoints)]]
    ]
    answers: Sequence[Answer] = asyncio.run(run_open(calls, RATE, NAME))
    failed = [answer.error for answer in answers if answer.error]
    assert len(failed) < len(answers) / 10, failed[0]


def _refused(admin: httpx.Client, shown: Furnished) -> None:
    """What people look for a reason of."""
    headers = {"authorization": f"Bearer {shown.secret}"}
    message = {"messages": [{"role": "user", "content": "Hi"}]}
    for body, status in (
        ({"model": "nobody-has-this", **message}, 404),
        ({"model": shown.adapter, **message, "max_tokens": 10_000_000}, 400),
    ):
        answer = admin.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == status, answer.text


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), f"{answer.request.url}: {answer.text}"
    return answer.json()


def _explained(admin: httpx.Client, shown: Furnished) -> Furnished:
    """The request that pictures explain: the newest that was answered."""
    listed = _made(admin.get(f"/api/v1/tenants/{shown.tenant}/requests", params={"limit": 50}))
    answered = [each["id"] for each in listed["data"] if each.get("status") == 200]
    return replace(shown, request=answered[0]) if answered else shown
