"""Bodies for sweeps over all routes."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, dict[str, Any]] = {
    "patch /keys/{key_id}": {"name": "x"},
    "post /keys/{key_id}/rotate": {},
    "patch /members/{member_id}": {"role": "viewer"},
    "put /members/{member_id}/password": {"password": "correct horse battery"},
    "post /members/{member_id}/tokens": {"name": "x"},
    "patch /keys/{key_id}/limits": {"max_parallel": 1},
    "put /adapters/{name}/shares/{recipient}": {},
    "put /adapters/{name}/placement": {"replicas": 2},
    "patch /adapters/{name}/limits": {"max_parallel": 1},
    **{f"post /adapters/{{name}}{rest}/restore": {} for rest in ("", "/versions/{number}")},
    **{f"post /adapters/{{name}}{rest}/purge": {"confirm": "x"} for rest in ("", "/versions/{number}")},
    "patch /uploads/{upload_id}": {},
    "post /uploads/{upload_id}": {},
    "patch /webhooks/{endpoint_id}": {"description": "x"},
    "post /webhooks/{endpoint_id}/rotate": {},
    "post /webhooks/{endpoint_id}/ping": {},
    "post /adapters/{name}/versions/{number}/proof": {},
    "post /webhooks/{endpoint_id}/deliveries/{delivery_id}/redeliver": {},
    "put /adapters/{name}/aliases/{alias}": {"version": 1},
    "post /adapters/{name}/rollouts": {"to": 2},
    "post /adapters/{name}/rollouts/{rollout_id}/pause": {},
    "post /adapters/{name}/rollouts/{rollout_id}/resume": {},
    "post /adapters/{name}/rollouts/{rollout_id}/promote": {},
    "post /adapters/{name}/rollouts/{rollout_id}/rollback": {},
}
"""What is sent with a changing route that names a thing of a tenant: good enough to reach the look-up."""

NO_IDS = {
    *("limit", "first", "last", "zone", "month", "kind", "at", "model", "adapter", "service_class", "deep"),
    *(
        *("base_digest", "touch", "return_to"),
        "since",
        "until",
        "state",
        "status",
        "lifecycle",
        "name_prefix",
        "id_prefix",
        "action",
        "actor",
        "target",
    ),
    *("period", "ledger"),
    *("kept_hash", "kept_seq", "by", "step", "window", "slow_ms", "outcome", "code", "key", "alias"),
    *("base_digest", "touch", "return_to", "points"),
}
"""Query parameters that name nothing of anyone's, or only filter what the asking tenant has."""

NOT_THERE_YET = {"/api/v1/tenants/{tenant}/offboarding"} | {
    f"{root}/adapters/{{name}}{rest}/purge"
    for root in ("/v1", "/api/v1/tenants/{tenant}")
    for rest in ("", "/versions/{number}")
}
"""What no owner here has: 404 to everyone."""

PLACES = {"after", "before", "cursor"}
"""Those that say where a list goes on."""

IDS_OF_OPERATORS = {"owner", "base_id", "version", "tenant", "replica", "tier", "wanted"}
"""Those of routes that only operators reach, who see all."""

STREAMS = {"/api/v1/changes", "/api/v1/tenants/{tenant}/changes"}
NO_STREAM = {"accept": "application/json"}
"""Answers that never end, and what keeps them from beginning: 406 to whoever would be let in."""

CHANGING_HEADERS = {"x-request-id", "content-length", "date"}
TENANT = "/api/v1/tenants/{tenant}"
