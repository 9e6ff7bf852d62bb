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
PROOF_S: Final = 120.0
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Place:
    """`path` and `way` may name fields of `Furnished`. `reads`: the route that the page is nothing without;
    who reaches it, may open the page. `way`: the page that leads there, then what is pressed, by its name;
    the main navigation and the account menu stand on every page, which is "". Without a way it is a page of
    the list in another state, which its address says. `opens`: what opens a dialog."""

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
    Place("tenants", "/tenants", "GET /api/v1/tenants", ("", "Tenants"), ("Create tenant…", "Find")),
    Place("tenant", "/tenants/{tenant}", f"GET {TENANT}", ("tenants", "{tenant_name}"), ("Suspend…",)),
    Place("keys", "/tenants/{tenant}/keys", f"GET {TENANT}/keys", ("tenant", "Keys"), ("Create key…",)),
    Place(
        "key",
        "/tenants/{tenant}/keys/{key}",
        f"GET {TENANT}/keys/{{key_id}}",
        ("keys", "{key_name}"),
        ("Rotate…", "Revoke…"),
    ),
    Place("limits", "/tenants/{tenant}/limits", f"GET {TENANT}/limits", ("tenant", "Limits")),
    Place(
        "tenant-audit",
        "/tenants/{tenant}/audit",
        f"GET {TENANT}/audit",
        ("tenant", "Audit"),
        ("tenant.create",),
    ),
    Place("replicas", "/replicas", "GET /api/v1/replicas", ("", "Replicas"), ("Drain…", "Show the API call")),
    Place("audit", "/audit", "GET /api/v1/audit", ("", "Audit")),
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
    request: str

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
    files = {part: (FILES / adapter / part).read_bytes() for part in (CONFIG, WEIGHTS)}
    _made(admin.post(f"{root}/adapters/{adapter}/versions", files=files))
    _until_live(admin, f"{root}/adapters/{adapter}")
    asked = {"model": adapter, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {key['secret']}"}
    answer = admin.post("/v1/chat/completions", json=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    return Furnished(
        tenant=made["id"],
        tenant_name=made["name"],
        key=key["key"]["id"],
        key_name="production",
        secret=key["secret"],
        adapter=adapter,
        request=answer.headers["x-request-id"],
    )


def _until_live(admin: httpx.Client, adapter: str) -> None:
    """An upload's answer waits for its proof, but not for ever."""
    deadline = time.monotonic() + PROOF_S
    while "live" not in _made(admin.get(adapter))["aliases"]:
        assert time.monotonic() < deadline, f"{adapter} was not proved in {PROOF_S:.0f} s"
        time.sleep(0.2)


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()
