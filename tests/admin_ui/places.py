"""Every page of the admin UI, for what goes over all of them: roles, axe, keyboard, a phone, screenshots.
A new page is one entry of `PLACES`; what its address names is made in `furnish`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx

from deploy.local.demo_tenants import FILES
from gateway.principal import Role
from gateway.roles import EVERYONE, roles_of

TENANT: Final = "/api/v1/tenants/{tenant}"
ADAPTER: Final = f"{TENANT}/adapters/{{name}}"
HOOK: Final = "https://hooks.example.com/motet"
PROOF_S: Final = 120.0
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Place:
    """`path`, `way` and `opens` may name fields of `Furnished`. `reads`: the route that the page is nothing
    without; who reaches it, may open the page. `way`: the page that leads there, then what is pressed, by its
    name; the main navigation and the account menu stand on every page, which is "". Without a way it is a
    page of the list in another state, which its address says. `opens`: what opens a dialog."""

    name: str
    path: str
    reads: str
    way: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()

    def allows(self, role: Role) -> bool:
        """As the gateway sees it: members act in their tenant, and elsewhere do what everyone does."""
        method, _, route = self.reads.partition(" ")
        roles = roles_of(method, route)
        return role in roles and (role is Role.OPERATOR or "{tenant}" in route or roles == EVERYONE)


PLACES: Final = (
    Place("overview", "/overview", "GET /api/v1/attention", ("", "Overview")),
    Place("tenants", "/tenants", "GET /api/v1/tenants", ("", "Tenants"), ("Create tenant…", "Find")),
    Place("tenant", "/tenants/{tenant}", f"GET {TENANT}", ("tenants", "{tenant_name}"), ("Suspend…",)),
    Place("adapters", "/tenants/{tenant}/adapters", f"GET {TENANT}/adapters", ("tenant", "Adapters")),
    Place(
        "upload",
        "/tenants/{tenant}/upload",
        f"POST {TENANT}/uploads",
        ("adapters", "Upload an adapter…"),
    ),
    Place(
        "adapter",
        "/tenants/{tenant}/adapters/{adapter}",
        f"GET {ADAPTER}",
        ("adapters", "{adapter}"),
    ),
    Place(
        "version",
        "/tenants/{tenant}/adapters/{adapter}/versions/1",
        f"GET {ADAPTER}/versions/{{number}}",
        ("adapter", "{adapter}@1"),
    ),
    Place(
        "aliases",
        "/tenants/{tenant}/adapters/{adapter}/aliases",
        f"GET {ADAPTER}/aliases",
        ("adapter", "Aliases"),
        ("Create alias…", "Move {adapter}@stable…", "Delete {adapter}@stable…"),
    ),
    Place(
        "rollouts",
        "/tenants/{tenant}/adapters/{adapter}/rollouts",
        f"GET {ADAPTER}/rollouts",
        ("adapter", "Rollouts"),
        ("Begin rollout…",),
    ),
    Place(
        "rollout",
        "/tenants/{tenant}/adapters/{adapter}/rollouts/{rollout}",
        f"GET {ADAPTER}/rollouts/{{rollout_id}}",
        ("rollouts", "{rollout_name}"),
        ("Roll back…",),
    ),
    Place(
        "adapter-limits",
        "/tenants/{tenant}/adapters/{adapter}/limits",
        f"GET {ADAPTER}/limits",
        ("adapter", "Limits and placement"),
        ("Have it lie ready…",),
    ),
    Place("diff", "/tenants/{tenant}/adapters/{adapter}/diff", f"GET {ADAPTER}", ("adapter", "Diff")),
    Place("playground", "/tenants/{tenant}/playground", f"GET {TENANT}/models", ("tenant", "Playground")),
    Place("requests", "/tenants/{tenant}/requests", f"GET {TENANT}/requests", ("tenant", "Requests")),
    Place(
        "request",
        "/tenants/{tenant}/requests/{request}",
        f"GET {TENANT}/requests/{{request_id}}",
        ("requests", "{request}"),
    ),
    Place("usage", "/tenants/{tenant}/usage", f"GET {TENANT}/usage/summary", ("tenant", "Usage")),
    Place("statement", "/tenants/{tenant}/billing", f"GET {TENANT}/billing/statement", ("tenant", "Billing")),
    Place("keys", "/tenants/{tenant}/keys", f"GET {TENANT}/keys", ("tenant", "Keys"), ("Create key…",)),
    Place(
        "key",
        "/tenants/{tenant}/keys/{key}",
        f"GET {TENANT}/keys/{{key_id}}",
        ("keys", "{key_name}"),
        ("Rotate…", "Revoke…"),
    ),
    Place(
        "members",
        "/tenants/{tenant}/members",
        f"GET {TENANT}/members",
        ("tenant", "Members"),
        ("Add member…",),
    ),
    Place(
        "member",
        "/tenants/{tenant}/members/{member}",
        f"GET {TENANT}/members/{{member_id}}",
        ("members", "{email}"),
    ),
    Place(
        "webhooks",
        "/tenants/{tenant}/webhooks",
        f"GET {TENANT}/webhooks",
        ("tenant", "Webhooks"),
        ("Create webhook…",),
    ),
    Place(
        "webhook",
        "/tenants/{tenant}/webhooks/{webhook}",
        f"GET {TENANT}/webhooks/{{endpoint_id}}",
        ("webhooks", HOOK),
    ),
    Place("limits", "/tenants/{tenant}/limits", f"GET {TENANT}/limits", ("tenant", "Limits")),
    Place(
        "tenant-audit",
        "/tenants/{tenant}/audit",
        f"GET {TENANT}/audit",
        ("tenant", "Audit"),
        ("tenant.create",),
    ),
    Place(
        "tenant-settings",
        "/tenants/{tenant}/settings",
        f"GET {TENANT}/retention",
        ("tenant", "Settings"),
        ("Off-board…",),
    ),
    Place("months", "/billing", "GET /api/v1/billing/periods", ("", "Billing")),
    Place("exports", "/billing/exports", "GET /api/v1/billing/exports", ("months", "Exports")),
    Place("prices", "/billing/prices", "GET /api/v1/price-books", ("months", "Price book")),
    Place("new-prices", "/billing/prices/new", "POST /api/v1/price-books", ("prices", "New version…")),
    Place("placement", "/placement", "GET /api/v1/placement", ("", "Placement")),
    Place("replicas", "/replicas", "GET /api/v1/replicas", ("", "Replicas"), ("Drain…", "Show the API call")),
    Place("pools", "/pools", "GET /api/v1/pool-rules", ("", "Pools")),
    Place("bases", "/bases", "GET /api/v1/bases", ("", "Bases")),
    Place("audit", "/audit", "GET /api/v1/audit", ("", "Audit")),
    Place("settings", "/settings", "DELETE /api/v1/sessions", ("", "Settings"), ("Keyboard shortcuts",)),
    Place("store", "/settings/store", "GET /api/v1/store", ("settings", "Object store"), ("Check…",)),
    Place("password", "/password", "PUT /api/v1/session/password", ("", "Account", "Change password…")),
)
BY_NAME: Final = {place.name: place for place in PLACES}


@dataclass(frozen=True)
class Furnished:
    """A tenant with one of each; what addresses name."""

    tenant: str
    tenant_name: str
    key: str
    key_name: str
    secret: str
    adapter: str
    rollout: str
    rollout_name: str
    request: str
    member: str
    email: str
    webhook: str

    def fill(self, text: str) -> str:
        """`{tenant}` → its id."""
        return re.sub(r"\{(\w+)\}", lambda found: str(getattr(self, found[1])), text)


def furnish(admin: httpx.Client, name: str | None = None) -> Furnished:
    """Through the public API, as an operator."""
    made = _made(admin.post("/api/v1/tenants", json={"name": name or f"furnished-{uuid4().hex[:8]}"}))
    root = f"/api/v1/tenants/{made['id']}"
    scopes = ["inference", "adapters:write"]  # no more than developers may give, who then see the key
    key = _made(admin.post(f"{root}/keys", json={"name": "production", "scopes": scopes}))
    adapter = "pirate"
    rollout = _in_two_versions(admin, f"{root}/adapters/{adapter}")
    asked = {"model": adapter, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {key['secret']}"}
    answer = admin.post("/v1/chat/completions", json=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    person = {"email": f"{uuid4().hex[:8]}@example.com", "role": "viewer"}
    member = _made(admin.post(f"{root}/members", json=person))
    _made(admin.post(f"{root}/members/{member['id']}/tokens", json={"name": "nightly"}))
    hook = _made(admin.post(f"{root}/webhooks", json={"url": HOOK}))["endpoint"]
    _made(admin.post(f"{root}/webhooks/{hook['id']}/ping"))
    return Furnished(
        tenant=made["id"],
        tenant_name=made["name"],
        key=key["key"]["id"],
        key_name="production",
        secret=key["secret"],
        adapter=adapter,
        rollout=rollout["id"],
        rollout_name=f"{rollout['alias']}: 1 → 2",
        request=answer.headers["x-request-id"],
        member=member["id"],
        email=person["email"],
        webhook=hook["id"],
    )


def _in_two_versions(admin: httpx.Client, adapter: str) -> Any:
    """`live` and `stable` point to the first; a rollout, which it returns, takes `canary` to the second."""
    for number, folder in enumerate(("pirate", "shout"), 1):
        files = {part: (FILES / folder / part).read_bytes() for part in (CONFIG, WEIGHTS)}
        alias = {"alias": "live" if number == 1 else "none"}
        _made(admin.post(f"{adapter}/versions", files=files, params=alias))
        until_ready(admin, f"{adapter}/versions/{number}")
    for name in ("stable", "canary"):
        _made(admin.put(f"{adapter}/aliases/{name}", json={"weights": {"1": 100}}))
    steps = [{"weight": 25, "hold_s": 86_400}, {"weight": 100}]
    return _made(admin.post(f"{adapter}/rollouts", json={"alias": "canary", "to": 2, "steps": steps}))


def until_ready(admin: httpx.Client, version: str) -> None:
    """An upload's answer waits for its proof, but not for ever."""
    deadline = time.monotonic() + PROOF_S
    while (state := _made(admin.get(version))["state"]) != "ready":
        assert state in ("uploaded", "proving"), f"{version} is {state}"
        assert time.monotonic() < deadline, f"{version} was not proved in {PROOF_S:.0f} s"
        time.sleep(0.2)


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()
