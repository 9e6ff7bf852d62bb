"""The demo's tenants, keys and adapters: made through the public API, and only where they are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from deploy.local.processes import Plan

FILES = Path(__file__).with_name("demo")
SCOPES = ("inference", "adapters:write", "usage:read")
LIMITS = {"requests_per_minute": 6_000, "tokens_per_minute": 2_000_000, "max_parallel": 64}
TENANTS = {"acme": ("pirate", "sentiment-json"), "globex": ("shout", "triage")}
TIMEOUT_S = 120.0
PAGE = 200
LOOK_S = 0.5


class DemoError(RuntimeError):
    """The API refused what the demo needs; the message is one line."""


@dataclass(frozen=True)
class DemoTenant:
    """One tenant of `demo.json`."""

    id: str
    name: str
    api_key: str
    scopes: Sequence[str]
    adapters: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def ensure_demo_tenants(plan: Plan, admin_token: str, known: Mapping[str, Any]) -> list[DemoTenant]:
    """`known`: what `demo.json` held. The API shows a key once, so an earlier one is kept while it opens.

    Raises `DemoError`.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(plan.public_url, timeout=timeout) as session:
            api = _Api(session, admin_token)
            keys = {tenant["name"]: tenant["api_key"] for tenant in known.get("tenants", ())}
            return [await _ensure(api, name, keys.get(name)) for name in TENANTS]
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DemoError(f"the gateway did not answer while the demo was set up: {error!r}") from error


async def admin_token_opens(plan: Plan, admin_token: str) -> bool:
    """Whether the token is registered already."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(plan.public_url, timeout=timeout) as session:
        return await _Api(session, admin_token).opens("/api/v1/tenants", admin_token)


class _Api:
    """The public API, as an operator and as a tenant."""

    def __init__(self, session: aiohttp.ClientSession, admin_token: str) -> None:
        self._session = session
        self._admin_token = admin_token

    async def as_admin(self, method: str, path: str, body: Any = None) -> Any:
        return await self._call(method, path, self._admin_token, json=body)

    async def upload(self, api_key: str, adapter: str) -> None:
        form = aiohttp.FormData()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            form.add_field(name, (FILES / adapter / name).read_bytes(), filename=name)
        await self._call("POST", f"/v1/adapters/{adapter}/versions", api_key, data=form)

    async def until_it_answers(self, api_key: str, adapter: str) -> None:
        """An upload's answer waits for its proof, but not for ever."""
        for _ in range(round(TIMEOUT_S / LOOK_S)):
            if "live" in (await self._call("GET", f"/v1/adapters/{adapter}", api_key))["aliases"]:
                return
            await asyncio.sleep(LOOK_S)
        raise DemoError(f"no replica has proved the adapter {adapter} in {TIMEOUT_S:g} s")

    async def opens(self, path: str, credential: str) -> bool:
        async with self._session.get(path, headers=_bearer(credential)) as response:
            return response.status == 200

    async def _call(self, method: str, path: str, credential: str, **content: Any) -> Any:
        async with self._session.request(method, path, headers=_bearer(credential), **content) as response:
            if response.status >= 400:
                raise DemoError(
                    f"{method} {path} answered {response.status}: {(await response.text())[:300]}"
                )
            return await response.json()


async def _ensure(api: _Api, name: str, known_key: str | None) -> DemoTenant:
    tenant_id = await _tenant_id(api, name)
    key = known_key
    if key is None or not await api.opens("/v1/usage", key):
        body = {"name": "demo", "scopes": list(SCOPES)}
        key = (await api.as_admin("POST", f"/api/v1/tenants/{tenant_id}/keys", body))["secret"]
    listed = await api.as_admin("GET", f"/api/v1/tenants/{tenant_id}/adapters?limit={PAGE}")
    present = {adapter["name"] for adapter in listed["data"]}
    for adapter in TENANTS[name]:
        if adapter not in present:
            await api.upload(key, adapter)
    for adapter in TENANTS[name]:
        await api.until_it_answers(key, adapter)
    return DemoTenant(tenant_id, name, key, SCOPES, TENANTS[name])


async def _tenant_id(api: _Api, name: str) -> str:
    after = ""
    while True:
        page = await api.as_admin("GET", f"/api/v1/tenants?limit={PAGE}{after}")
        for tenant in page["data"]:
            if tenant["name"] == name:
                return str(tenant["id"])
        if not page["has_more"]:
            break
        after = f"&after={page['data'][-1]['id']}"
    return str((await api.as_admin("POST", "/api/v1/tenants", {"name": name, **LIMITS}))["id"])


def _bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}
