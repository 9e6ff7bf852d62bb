"""Which role may reach which route under `/api/v1`: one table, and what is not in it is open to nobody.

A test walks the application's routes and fails for one that does not state its roles here, and for an entry
that names no route. Which tenant's objects a route reaches is not decided here but by the path: a role is
that of the account in the tenant that the path names, and in another it has none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from gateway.principal import Role, Scope

Roles = frozenset[Role]

OPERATORS: Final[Roles] = frozenset({Role.OPERATOR})
ADMINS: Final[Roles] = OPERATORS | {Role.TENANT_ADMIN}
DEVELOPERS: Final[Roles] = ADMINS | {Role.DEVELOPER}
READERS: Final[Roles] = DEVELOPERS | {Role.VIEWER}
BILLING: Final[Roles] = ADMINS | {Role.BILLING}
EVERYONE: Final[Roles] = frozenset(Role)
"""Of a tenant's route, all its members; of a route without a tenant, every account that is logged in."""

_TENANT = "/api/v1/tenants/{tenant}"

ROLES: Final[dict[tuple[str, str], Roles]] = {
    # of the account itself
    ("GET", "/api/v1/session"): EVERYONE,
    ("DELETE", "/api/v1/session"): EVERYONE,
    ("PUT", "/api/v1/session/password"): EVERYONE,
    ("DELETE", "/api/v1/sessions"): EVERYONE,
    # of the platform
    ("GET", "/api/v1/changes"): OPERATORS,
    ("GET", "/api/v1/tenants"): EVERYONE,  # its own
    ("POST", "/api/v1/tenants"): OPERATORS,
    ("GET", "/api/v1/audit"): OPERATORS,
    ("GET", "/api/v1/audit/heads"): OPERATORS,
    ("GET", "/api/v1/audit/verify"): OPERATORS,
    ("GET", "/api/v1/audit/export"): OPERATORS,
    ("GET", "/api/v1/metrics/requests"): OPERATORS,
    ("GET", "/api/v1/attention"): OPERATORS,
    ("GET", "/api/v1/requests/{request_id}"): EVERYONE,  # of tenants in which it may read them
    ("GET", "/api/v1/store"): OPERATORS,
    ("GET", "/api/v1/store/fsck"): OPERATORS,
    ("POST", "/api/v1/store/fsck"): OPERATORS,
    ("GET", "/api/v1/store/fsck/{check_id}"): OPERATORS,
    ("GET", "/api/v1/replicas"): OPERATORS,
    ("POST", "/api/v1/replicas"): OPERATORS,
    ("GET", "/api/v1/replicas/{replica}"): OPERATORS,
    ("PATCH", "/api/v1/replicas/{replica}"): OPERATORS,
    ("DELETE", "/api/v1/replicas/{replica}"): OPERATORS,
    ("POST", "/api/v1/replicas/{replica}/token"): OPERATORS,
    ("GET", "/api/v1/placement"): OPERATORS,
    ("GET", "/api/v1/placement/moves"): OPERATORS,
    ("GET", "/api/v1/pool-rules"): OPERATORS,
    ("PUT", "/api/v1/pool-rules"): OPERATORS,
    ("GET", "/api/v1/base-weights"): OPERATORS,
    ("PUT", "/api/v1/base-weights"): OPERATORS,
    ("GET", "/api/v1/bases"): OPERATORS,
    ("POST", "/api/v1/bases/{base_id}/upgrades"): OPERATORS,
    ("POST", "/api/v1/bases/{base_id}/upgrades/{digest}/end"): OPERATORS,
    ("GET", "/api/v1/bases/{base_id}/left-behind"): OPERATORS,
    ("GET", "/api/v1/price-books"): OPERATORS,
    ("POST", "/api/v1/price-books"): OPERATORS,
    ("GET", "/api/v1/price-books/{version}"): OPERATORS,
    ("GET", "/api/v1/price-choice"): OPERATORS,
    ("POST", "/api/v1/price-books/{version}/re-ratings"): OPERATORS,
    ("POST", "/api/v1/price-books/preview"): OPERATORS,
    ("GET", "/api/v1/billing/periods"): OPERATORS,
    ("GET", "/api/v1/billing/periods/{month}/tenants"): OPERATORS,
    ("GET", "/api/v1/billing/exports"): OPERATORS,
    ("POST", "/api/v1/billing/exports"): OPERATORS,
    ("GET", "/api/v1/billing/exports/{export_id}"): OPERATORS,
    ("GET", "/api/v1/billing/exports/{export_id}/file"): OPERATORS,
    # of a tenant
    ("GET", _TENANT): EVERYONE,
    ("GET", f"{_TENANT}/changes"): EVERYONE,  # of what its role may read (changes/kinds.py)
    ("PATCH", _TENANT): OPERATORS,  # its limits, weight and status are the platform's to set
    ("POST", f"{_TENANT}/suspend"): OPERATORS,
    ("POST", f"{_TENANT}/resume"): OPERATORS,
    ("GET", f"{_TENANT}/offboarding"): ADMINS,
    ("POST", f"{_TENANT}/offboarding"): OPERATORS,
    ("DELETE", f"{_TENANT}/offboarding"): OPERATORS,
    ("GET", f"{_TENANT}/retention"): READERS,
    ("PATCH", f"{_TENANT}/retention"): OPERATORS,
    ("GET", f"{_TENANT}/audit"): ADMINS,
    ("GET", f"{_TENANT}/audit/verify"): ADMINS,
    ("GET", f"{_TENANT}/audit/export"): ADMINS,
    ("GET", f"{_TENANT}/members"): ADMINS,
    ("POST", f"{_TENANT}/members"): ADMINS,
    ("GET", f"{_TENANT}/members/{{member_id}}"): ADMINS,
    ("PATCH", f"{_TENANT}/members/{{member_id}}"): ADMINS,
    ("DELETE", f"{_TENANT}/members/{{member_id}}"): ADMINS,
    ("PUT", f"{_TENANT}/members/{{member_id}}/password"): OPERATORS,
    ("GET", f"{_TENANT}/members/{{member_id}}/tokens"): ADMINS,
    ("POST", f"{_TENANT}/members/{{member_id}}/tokens"): ADMINS,
    ("DELETE", f"{_TENANT}/members/{{member_id}}/tokens/{{token_id}}"): ADMINS,
    ("GET", f"{_TENANT}/keys"): DEVELOPERS,  # those within what the role may give (api_keys/grants.py)
    ("POST", f"{_TENANT}/keys"): DEVELOPERS,
    ("GET", f"{_TENANT}/keys/{{key_id}}"): DEVELOPERS,
    ("PATCH", f"{_TENANT}/keys/{{key_id}}"): DEVELOPERS,
    ("DELETE", f"{_TENANT}/keys/{{key_id}}"): DEVELOPERS,
    ("POST", f"{_TENANT}/keys/{{key_id}}/rotate"): DEVELOPERS,
    ("DELETE", f"{_TENANT}/keys/{{key_id}}/previous-secret"): DEVELOPERS,
    ("GET", f"{_TENANT}/limits"): READERS,
    ("GET", f"{_TENANT}/limits/now"): READERS,
    ("PATCH", f"{_TENANT}/limits"): OPERATORS,
    ("GET", f"{_TENANT}/keys/{{key_id}}/limits"): DEVELOPERS,
    ("PATCH", f"{_TENANT}/keys/{{key_id}}/limits"): ADMINS,
    ("GET", f"{_TENANT}/adapters/{{name}}/limits"): READERS,
    ("PATCH", f"{_TENANT}/adapters/{{name}}/limits"): ADMINS,
    ("GET", f"{_TENANT}/caches"): READERS,
    ("PATCH", f"{_TENANT}/caches"): OPERATORS,
    ("DELETE", f"{_TENANT}/caches"): ADMINS,
    ("GET", f"{_TENANT}/models"): READERS,
    ("GET", f"{_TENANT}/adapters"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}"): READERS,
    ("DELETE", f"{_TENANT}/adapters/{{name}}"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/versions"): READERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/versions"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/versions/{{number}}"): READERS,
    ("DELETE", f"{_TENANT}/adapters/{{name}}/versions/{{number}}"): DEVELOPERS,
    ("GET", f"{_TENANT}/uploads"): READERS,
    ("POST", f"{_TENANT}/uploads"): DEVELOPERS,
    ("GET", f"{_TENANT}/uploads/{{upload_id}}"): READERS,
    ("HEAD", f"{_TENANT}/uploads/{{upload_id}}"): READERS,
    ("PATCH", f"{_TENANT}/uploads/{{upload_id}}"): DEVELOPERS,
    ("POST", f"{_TENANT}/uploads/{{upload_id}}"): DEVELOPERS,
    ("DELETE", f"{_TENANT}/uploads/{{upload_id}}"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/proof"): READERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/proof"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/diff/{{other}}"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/aliases"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/aliases/{{alias}}"): READERS,
    ("PUT", f"{_TENANT}/adapters/{{name}}/aliases/{{alias}}"): DEVELOPERS,
    ("DELETE", f"{_TENANT}/adapters/{{name}}/aliases/{{alias}}"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/rollouts"): READERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/rollouts"): DEVELOPERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}"): READERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}/pause"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}/resume"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}/promote"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}/rollback"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/restore"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/restore"): DEVELOPERS,
    ("POST", f"{_TENANT}/adapters/{{name}}/purge"): ADMINS,  # nobody brings it back
    ("POST", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/purge"): ADMINS,
    ("GET", f"{_TENANT}/adapters/{{name}}/purge"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/versions/{{number}}/purge"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/shares"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/shares/{{recipient}}"): READERS,
    ("PUT", f"{_TENANT}/adapters/{{name}}/shares/{{recipient}}"): OPERATORS,  # it reaches into two tenants
    ("DELETE", f"{_TENANT}/adapters/{{name}}/shares/{{recipient}}"): OPERATORS,
    ("GET", f"{_TENANT}/shared-adapters"): READERS,
    ("GET", f"{_TENANT}/adapters/{{name}}/placement"): READERS,
    ("PUT", f"{_TENANT}/adapters/{{name}}/placement"): DEVELOPERS,
    ("DELETE", f"{_TENANT}/adapters/{{name}}/placement"): DEVELOPERS,
    ("GET", f"{_TENANT}/placement-quota"): READERS,
    ("PUT", f"{_TENANT}/placement-quota"): OPERATORS,
    ("GET", f"{_TENANT}/usage"): EVERYONE,
    ("GET", f"{_TENANT}/usage/summary"): EVERYONE,
    ("GET", f"{_TENANT}/usage/shared-adapters"): EVERYONE,
    ("GET", f"{_TENANT}/usage/{{request_id}}/receipt"): EVERYONE,
    ("GET", f"{_TENANT}/usage/receipt-keys"): BILLING,
    ("GET", f"{_TENANT}/requests"): READERS,
    ("GET", f"{_TENANT}/requests/{{request_id}}"): READERS,
    ("GET", f"{_TENANT}/metrics/requests"): READERS,
    ("GET", f"{_TENANT}/webhooks"): ADMINS,
    ("POST", f"{_TENANT}/webhooks"): ADMINS,
    ("GET", f"{_TENANT}/webhooks/{{endpoint_id}}"): ADMINS,
    ("PATCH", f"{_TENANT}/webhooks/{{endpoint_id}}"): ADMINS,
    ("DELETE", f"{_TENANT}/webhooks/{{endpoint_id}}"): ADMINS,
    ("POST", f"{_TENANT}/webhooks/{{endpoint_id}}/rotate"): ADMINS,
    ("POST", f"{_TENANT}/webhooks/{{endpoint_id}}/ping"): ADMINS,
    ("GET", f"{_TENANT}/webhooks/{{endpoint_id}}/deliveries"): ADMINS,
    ("POST", f"{_TENANT}/webhooks/{{endpoint_id}}/deliveries/{{delivery_id}}/redeliver"): ADMINS,
    ("GET", f"{_TENANT}/billing/periods"): BILLING,
    ("GET", f"{_TENANT}/billing/statement"): BILLING,
    ("GET", f"{_TENANT}/billing/exports"): BILLING,
    ("POST", f"{_TENANT}/billing/exports"): BILLING,
    ("GET", f"{_TENANT}/billing/exports/{{export_id}}"): BILLING,
    ("GET", f"{_TENANT}/billing/exports/{{export_id}}/file"): BILLING,
}

_ADAPTERS = frozenset({Scope.ADAPTERS_READ, Scope.ADAPTERS_WRITE})
SCOPES: Final[dict[Role, frozenset[Scope]]] = {
    Role.OPERATOR: _ADAPTERS | {Scope.USAGE_READ, Scope.WEBHOOKS},
    Role.TENANT_ADMIN: _ADAPTERS | {Scope.USAGE_READ, Scope.WEBHOOKS},
    Role.DEVELOPER: _ADAPTERS | {Scope.USAGE_READ},
    Role.BILLING: frozenset({Scope.USAGE_READ}),
    Role.VIEWER: frozenset({Scope.ADAPTERS_READ, Scope.USAGE_READ}),
}
"""What an account that acts for a tenant passes for in handlers that tenants' keys reach too. Never
inference: that is a key's."""


def roles_of(method: str, route: str) -> Roles:
    """Those that may; none for what the table does not name. `route` as Litestar has it."""
    return ROLES.get((method, _template(route)), frozenset())


@lru_cache(maxsize=1024)
def _template(route: str) -> str:
    """`/a/{b:uuid}` → `/a/{b}`."""
    return re.sub(r"\{([^:}]+):[^}]+\}", r"{\1}", route)
