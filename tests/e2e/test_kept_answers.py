"""Answers that are given again, on the whole platform: over two workers, a real engine and the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest


@dataclass(frozen=True)
class Customer:
    """A tenant of its own, so that no other test meets its cache."""

    caches: str
    key: str
    body: dict[str, Any]
    base_url: str

    def ask(self, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        """On a connection of its own: the kernel picks a worker for each."""
        credential = {"authorization": f"Bearer {self.key}"}
        return httpx.post(
            f"{self.base_url}/v1/completions",
            json=self.body | fields,
            headers=credential | (headers or {}),
            timeout=60,
        )


@pytest.fixture
def customer(base_url: str, admin: httpx.Client, base_model: str) -> Iterator[Customer]:
    tenant = admin.post("/api/v1/tenants", json={"name": f"kept-{uuid4().hex[:12]}"}).json()["id"]
    key = admin.post(f"/api/v1/tenants/{tenant}/keys", json={"name": "k"}).json()["secret"]
    prompt = f"The number {uuid4().hex[:4]} is" + " one of many" * 30  # several blocks of KV
    body = {"model": base_model, "prompt": prompt, "max_tokens": 8, "temperature": 0}
    yield Customer(f"/api/v1/tenants/{tenant}/caches", key, body, base_url)
    admin.patch(f"/api/v1/tenants/{tenant}", json={"status": "suspended"})


def cached_tokens(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_cache_that_is_turned_on_hits_until_it_is_dropped(customer: Customer, admin: httpx.Client) -> None:
    assert customer.ask().headers["x-motet-cache"] == "off"
    admin.patch(customer.caches, json={"response_cache": "greedy"})
    first = customer.ask()
    assert (first.status_code, first.headers["x-motet-cache"]) == (200, "miss")
    time.sleep(0.2)  # it is kept once its client has it, which another worker may ask sooner
    again = [customer.ask() for _ in range(4)]
    assert {answer.headers["x-motet-cache"] for answer in again} == {"hit"}
    assert {answer.content for answer in again} == {first.content}
    assert cached_tokens(customer.ask(max_tokens=7)) > 0
    assert admin.request("DELETE", customer.caches).json()["answers"] >= 1
    after = customer.ask()
    assert after.headers["x-motet-cache"] == "miss"
    assert cached_tokens(after) == 0  # KV was dropped with it
    assert after.json()["choices"] == first.json()["choices"]


def test_a_retry_on_any_worker_hears_its_first_try(customer: Customer) -> None:
    key = {"idempotency-key": uuid4().hex}
    answers = [customer.ask(key) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.content for answer in answers}) == 1
    assert ["idempotent-replayed" in answer.headers for answer in answers] == [False] + [True] * 4
