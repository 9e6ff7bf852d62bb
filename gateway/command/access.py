"""Which gateway the command line talks to, and as whom: options, then environment, then the demo's file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.command.api import Api, CommandFailed

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Access:
    """What was given, and what `var/demo.json` holds."""

    url: str | None = None
    admin_token: str | None = None
    api_key: str | None = None
    demo: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def gather(cls, url: str | None, admin_token: str | None, api_key: str | None) -> Access:
        return cls(url, admin_token, api_key, _read_demo(Path(os.environ.get("MOTET_HOME", "var"))))

    @property
    def base_url(self) -> str:
        return self.url or self.demo.get("base_url", DEFAULT_URL).removesuffix("/").removesuffix("/v1")

    def admin(self) -> Api:
        """As an operator; raises `CommandFailed` when no token is known."""
        token = self._admin_token
        if token is None:
            raise CommandFailed("This needs an operator's token: --admin-token or MOTET_ADMIN_TOKEN.")
        return Api(self.base_url, token)

    def of_tenant(self, tenant: str | None) -> tuple[Api, str]:
        """Who may act for the tenant, and the path its things lie under. A tenant that is named is meant, and
        takes an operator's or a member's token: a key opens its own tenant, whatever was named. Raises
        `CommandFailed`."""
        if tenant is None and self.api_key is not None:
            return Api(self.base_url, self.api_key), "/v1"
        if tenant is None:
            raise CommandFailed("Name a tenant with --tenant, or give its key: --api-key or MOTET_API_KEY.")
        if self._admin_token is None:
            raise CommandFailed(
                "--tenant needs an operator's or a member's token: --admin-token or MOTET_ADMIN_TOKEN."
                " An API key is for its own tenant, without --tenant."
            )
        api = self.admin()
        return api, f"/api/v1/tenants/{tenant_id(api, tenant)}"

    def of_key(self, tenant: str | None) -> Api:
        """As a tenant's key: the one that is given, or the demo's of that tenant. Raises `CommandFailed`."""
        key = self._demo_key(tenant) if tenant is not None else self.api_key
        if key is None:
            raise CommandFailed("This needs the tenant's key: --api-key or MOTET_API_KEY, without --tenant.")
        return Api(self.base_url, key)

    @property
    def _admin_token(self) -> str | None:
        return self.admin_token or self.demo.get("admin", {}).get("token")

    def _demo_key(self, tenant: str | None) -> str | None:
        known = {each["name"]: each.get("api_key") for each in self.demo.get("tenants", [])}
        return known.get(tenant) if tenant is not None else None


def tenant_id(api: Api, name: str) -> str:
    """A tenant's id by its name; raises `CommandFailed`."""
    for tenant in api.pages("/api/v1/tenants"):
        if name in (tenant["name"], tenant["id"]):
            return str(tenant["id"])
    raise CommandFailed(f"There is no tenant '{name}'.")


def _read_demo(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / "demo.json").read_text())
    except (OSError, ValueError):  # not there, not ours to read, or half written: then options must say it
        return {}
    return found if isinstance(found, dict) else {}
