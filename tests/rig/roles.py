"""Everybody who may knock: one list, for the runs that send every route what everybody could send. A new kind
of credential is added here, and only here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httpx

from tests.rig.rig import ALL_SCOPES, Rig, TenantKey

Headers = dict[str, str]


@dataclass(frozen=True)
class Role:
    """`headers` of whoever plays it, made for one tenant."""

    name: str
    headers: Callable[[Rig, httpx.Client, TenantKey], Headers]


def _with_scopes(*scopes: str) -> Callable[[Rig, httpx.Client, TenantKey], Headers]:
    def make(rig: Rig, admin: httpx.Client, owner: TenantKey) -> Headers:
        return rig.key_of(admin, owner.tenant, name="-".join(scopes)[:100], scopes=list(scopes)).headers

    return make


def _operator(rig: Rig, _: httpx.Client, __: TenantKey) -> Headers:
    return rig.admin_headers


def _nobody(_: Rig, __: httpx.Client, ___: TenantKey) -> Headers:
    return {}


ROLES = (
    Role("nobody", _nobody),
    *(Role(f"key with {scope}", _with_scopes(scope)) for scope in ALL_SCOPES),
    Role("key with all scopes", _with_scopes(*ALL_SCOPES)),
    Role("operator", _operator),
)


def callers(rig: Rig) -> dict[str, Headers]:
    """Everybody's headers, by name; keys are of one fresh tenant."""
    owner = rig.tenant()
    with rig.admin() as admin:
        return {role.name: role.headers(rig, admin, owner) for role in ROLES}
