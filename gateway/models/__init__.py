"""The tables, one a file. The truth about columns, constraints and grants is in `migrations/`; a test
holds both equal."""

from __future__ import annotations

from gateway.models.adapter import Adapter
from gateway.models.adapter_version import AdapterVersion, VersionState
from gateway.models.admin import Admin
from gateway.models.admin_token import AdminToken
from gateway.models.alias import Alias
from gateway.models.api_key import ApiKey
from gateway.models.audit_event import AuditEvent
from gateway.models.base import Base
from gateway.models.base_model import BaseModel
from gateway.models.journal_cursor import JournalCursor
from gateway.models.replica import Replica, ReplicaState
from gateway.models.tenant import Tenant, TenantStatus
from gateway.models.usage_ledger import UsageLedger
from gateway.models.usage_staging import UsageStaging
from gateway.models.usage_uncounted import UsageUncounted

__all__ = [
    "Adapter",
    "AdapterVersion",
    "Admin",
    "AdminToken",
    "Alias",
    "ApiKey",
    "AuditEvent",
    "Base",
    "BaseModel",
    "JournalCursor",
    "Replica",
    "ReplicaState",
    "Tenant",
    "TenantStatus",
    "UsageLedger",
    "UsageStaging",
    "UsageUncounted",
    "VersionState",
]
