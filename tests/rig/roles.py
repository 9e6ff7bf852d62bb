"""Everybody who may knock: one list, for the runs that send every route what everybody could send. A new kind
of credential is added here, and only here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from gateway.principal import Role
from tests.rig.client import body_of
from tests.rig.rig import ALL_SCOPES, Rig, TenantKey

Headers = dict[str, str]
MEMBER_ROLES = tuple(role.value for role in Role if role is not Role.OPERATOR)
Make = Callable[[Rig, httpx.Client, TenantKey], Headers]


@dataclass(frozen=True)
class Caller:
    """`headers` of whoever it is, made for one tenant."""

    name: str
    headers: Make


def _with_scopes(*scopes: str) -> Make:
    def make(rig: Rig, admin: httpx.Client, owner: TenantKey) -> Headers:
        return rig.key_of(admin, owner.tenant, name="-".join(scopes)[:100], scopes=list(scopes)).headers

    return make


def _member(role: str) -> Make:
    def make(_: Rig, admin: httpx.Client, owner: TenantKey) -> Headers:
        return {"authorization": f"Bearer {add_member(admin, owner.tenant, role).token}"}

    return make


def _operator(rig: Rig, _: httpx.Client, __: TenantKey) -> Headers:
    return rig.admin_headers


def _replica(rig: Rig, _: httpx.Client, __: TenantKey) -> Headers:
    return {"authorization": f"Bearer {rig.settings['REGISTRATION_TOKEN']}"}


def _nobody(_: Rig, __: httpx.Client, ___: TenantKey) -> Headers:
    return {}


CALLERS = (
    Caller("nobody", _nobody),
    *(Caller(f"key with {scope}", _with_scopes(scope)) for scope in ALL_SCOPES),
    Caller("key with all scopes", _with_scopes(*ALL_SCOPES)),
    *(Caller(role, _member(role)) for role in MEMBER_ROLES),
    Caller("replica", _replica),
    Caller("operator", _operator),
)


def callers(rig: Rig, owner: TenantKey, but: Collection[str] = ()) -> dict[str, Headers]:
    """Everybody's headers, by name, but of those named; keys and members are the owner's tenant's."""
    with rig.admin() as admin:
        return {each.name: each.headers(rig, admin, owner) for each in CALLERS if each.name not in but}


@dataclass(frozen=True)
class Member:
    """`id` of the membership; `token_id` is the public part of `token`."""

    id: str
    email: str
    token_id: str
    token: str


def add_member(admin: httpx.Client, tenant: str, role: str) -> Member:
    """A new account's membership, with a token."""
    members = f"/api/v1/tenants/{tenant}/members"
    email = f"{uuid4().hex}@example.com"
    made = _made(admin.post(members, json={"email": email, "role": role}))
    told = _made(admin.post(f"{members}/{made['id']}/tokens", json={"name": role}))
    return Member(made["id"], email, told["token"]["id"], told["secret"])


def known_ids(rig: Rig, owner: TenantKey) -> dict[str, str | int]:
    """Path parameters that name something which is there, and which none of the callers needs."""
    root = f"/api/v1/tenants/{owner.tenant}"
    with rig.admin() as admin:
        member = add_member(admin, owner.tenant, "viewer")
        hook = {"url": "https://hooks.example.com/a"}
        export = _made(admin.post("/api/v1/billing/exports", json={"month": "2026-01"}))
        replica = _made(admin.post("/api/v1/replicas", json={"url": "http://127.0.0.1:9"}))
        ids: dict[str, str | int] = {
            "tenant": owner.tenant,
            "key_id": rig.key_of(admin, owner.tenant, name="of nobody").key_id,
            "member_id": member.id,
            "token_id": member.token_id,
            "endpoint_id": _made(admin.post(f"{root}/webhooks", json=hook))["endpoint"]["id"],
            "export_id": export["id"],
            "replica": replica["id"],
            "version": 1,
            "month": "2026-01",
        }
    url = f"{rig.base_url}/v1/completions"
    answer = httpx.post(url, json=body_of(rig.base_name, 2), headers=owner.headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return ids | {"request_id": answer.headers["x-request-id"]}


def undo(rig: Rig, tenant: str) -> None:
    """What an operator's requests may have done to all the others: the tenant serves, without limits, and
    requests go where they went."""
    with rig.admin() as admin:
        admin.delete(f"/api/v1/tenants/{tenant}/offboarding")  # 404 or 409 where there is none
        changed = [
            admin.patch(
                f"/api/v1/tenants/{tenant}",
                json={
                    "status": "active",
                    "requests_per_minute": None,
                    "tokens_per_minute": None,
                    "max_parallel": None,
                },
            ),
            admin.put("/api/v1/pool-rules", json={"rules": []}),
        ]
    assert [answer.status_code for answer in changed] == [200, 200], [answer.text for answer in changed]


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()
