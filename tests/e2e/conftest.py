"""The whole platform as its users see it: HTTP and SDKs only, against `motet up`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI

from adapters.base import BaseSpec
from tests.e2e.documented import Sender
from tests.metering import journal_lines

DEMO = Path(__file__).resolve().parents[2] / "deploy" / "local" / "demo"


@dataclass(frozen=True)
class Golden:
    """One prompt of an adapter's `golden.json`: what transformers and PEFT answer in fp32."""

    adapter: str
    prompt: str
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    text: str

    @property
    def messages(self) -> list[Any]:
        return [{"role": "user", "content": self.prompt}]


@pytest.fixture(scope="session")
def base_url(platform: dict[str, Any]) -> str:
    """The origin, without `/v1`."""
    return str(platform["base_url"]).removesuffix("/").removesuffix("/v1")


@pytest.fixture(scope="session")
def api_keys(platform: dict[str, Any]) -> dict[str, str]:
    """Tenant's name → its demo key."""
    return {tenant["name"]: tenant["api_key"] for tenant in platform["tenants"]}


@pytest.fixture(scope="session")
def tenant_ids(platform: dict[str, Any]) -> dict[str, str]:
    return {tenant["name"]: tenant["id"] for tenant in platform["tenants"]}


@pytest.fixture(scope="session")
def base_model(platform: dict[str, Any]) -> str:
    return str(platform["base_model"])


@pytest.fixture(scope="session")
def admin(base_url: str, platform: dict[str, Any]) -> Iterator[httpx.Client]:
    with client_of(base_url, platform["admin"]["token"]) as client:
        yield client


@pytest.fixture(scope="session")
def acme(base_url: str, api_keys: dict[str, str]) -> Iterator[httpx.Client]:
    with client_of(base_url, api_keys["acme"]) as client:
        yield client


@pytest.fixture(scope="session")
def globex(base_url: str, api_keys: dict[str, str]) -> Iterator[httpx.Client]:
    with client_of(base_url, api_keys["globex"]) as client:
        yield client


@pytest.fixture
def sdk(base_url: str, api_keys: dict[str, str]) -> Iterator[OpenAI]:
    """openai-python as acme; it doesn't retry, so that an error is seen as it came."""
    with OpenAI(base_url=f"{base_url}/v1", api_key=api_keys["acme"], max_retries=0, timeout=300) as client:
        yield client


@pytest.fixture
def async_sdk(base_url: str, api_keys: dict[str, str]) -> dict[str, AsyncOpenAI]:
    """The same, asynchronous, for each tenant; the test closes what it uses."""
    url = f"{base_url}/v1"
    return {name: AsyncOpenAI(base_url=url, api_key=key, timeout=300) for name, key in api_keys.items()}


@pytest.fixture(scope="session")
def engine(platform: dict[str, Any]) -> Iterator[httpx.Client]:
    """The replica's private side, to see what reached it."""
    replica = platform["engines"][0]
    with client_of(replica["url"], replica["token"]) as client:
        yield client


@pytest.fixture(scope="session")
def goldens() -> list[Golden]:
    found = []
    for folder in sorted(path for path in DEMO.iterdir() if path.is_dir()):
        for case in json.loads((folder / "golden.json").read_text()):
            case["prompt"] = case.pop("user")
            found.append(Golden(adapter=folder.name, **case))
    return found


@pytest.fixture(scope="session")
def credentials(admin: httpx.Client, tenant_ids: dict[str, str]) -> dict[str, str]:
    """acme's other keys: revoked, expired, and one that may only read."""
    path = f"/api/v1/tenants/{tenant_ids['acme']}/keys"

    def make(**fields: Any) -> dict[str, Any]:
        answer = admin.post(path, json={"name": "bad input", "scopes": ["inference"], **fields})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    expired = make(expires_at=(datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    revoked = make()
    assert admin.delete(f"{path}/{revoked['key']['id']}").status_code == 200
    reader = make(scopes=["adapters:read"])
    time.sleep(1.1)
    return {"revoked": revoked["secret"], "expired": expired["secret"], "reader": reader["secret"]}


@pytest.fixture(scope="session")
def sender(acme: httpx.Client, credentials: dict[str, str], demo_model_dir: Path, base_model: str) -> Sender:
    acme.get("/v1/models")  # the connection and the key's cache are warm, as a client's are
    return Sender(acme, credentials, BaseSpec.from_dir(demo_model_dir, base_model))


@pytest.fixture
def no_trace(engine: httpx.Client) -> Iterator[None]:
    """The engine's journal holds after the test what it held before, probes aside."""
    before = len(journal_lines(engine))
    yield
    assert len(journal_lines(engine)) == before


def client_of(url: str, credential: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"authorization": f"Bearer {credential}"}, timeout=120)
