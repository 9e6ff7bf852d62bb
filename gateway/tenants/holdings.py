"""What the platform holds of a tenant, table by table: purged when it leaves, or kept, and why.

Every table with a `tenant_id`, or another column that names a tenant, stands here; a test fails for one that
doesn't. Accounts name none: they end with their last membership (`purge_parts.py`).
"""

from __future__ import annotations

from typing import Final

PURGED_TABLES: Final = frozenset(
    {
        "api_keys",
        "adapters",
        "adapter_shares",
        "adapter_versions",
        "adapter_facts",
        "adapter_proofs",
        "proof_tasks",
        "aliases",
        "rollouts",
        "rollout_events",
        "billing_exports",
        "retention_rules",
        "members",
        "budgets",
        "webhook_endpoints",
        "webhook_events",
        "webhook_deliveries",
        "request_events",
        "request_minutes",
        "pool_rules",
        "uploads",
        "storage_holds",
        "placements",
        "placement_quotas",
    }
)

KEPT_TABLES: Final = {
    "usage_ledger": "evidence of what was billed; counts and names of adapters, never content",
    "usage_uncounted": "usage that may still be billed; it becomes ledger rows within a day",
    "usage_staging": "the ledger's way in; emptied as it is loaded",
    "usage_arrivals": "work to do on the ledger; emptied as it is done",
    "usage_rollups": "sums of the ledger",
    "usage_unpriced": "what of the ledger has no price yet",
    "usage_charges": "books of account: the law has them kept for years",
    "billing_statements": "issued invoices: the law has them kept for years",
    "prices": "the price book, by which it was billed: names its adapters, and can't be changed",
    "audit_events": "who did what: append-only and chained, so that it can be trusted",
    "offboardings": "the proof of the purge itself",
    "artefact_purges": "which adapters were purged: ids only, until 90 days after",
    "artefact_purge_replicas": "which replicas purged them, and which owe it should they come back",
}

NAMED_OTHERWISE: Final = {"pool_rules": "tenant", "prices": "owner_id"}
"""The columns of tables that call a tenant something else than `tenant_id`."""
