"""The tables, one a file. The truth about columns, constraints and grants is in `migrations/`; a test
holds both equal."""

from __future__ import annotations

from gateway.models.adapter import Adapter
from gateway.models.adapter_facts import AdapterFacts
from gateway.models.adapter_proof import AdapterProof
from gateway.models.adapter_share import AdapterShare
from gateway.models.adapter_version import AdapterVersion, VersionState
from gateway.models.admin import Admin
from gateway.models.admin_identity import AdminIdentity
from gateway.models.admin_token import AdminToken
from gateway.models.alias import Alias
from gateway.models.api_key import ApiKey
from gateway.models.artefact_purge import ArtefactPurge
from gateway.models.artefact_purge_replica import ArtefactPurgeReplica, ReplicaPurge
from gateway.models.audit_event import AuditEvent
from gateway.models.audit_link import AuditLink
from gateway.models.base import Base
from gateway.models.base_model import BaseModel
from gateway.models.base_upgrade import BaseUpgrade, UpgradeState
from gateway.models.billing_export import BillingExport
from gateway.models.billing_period import BillingPeriod
from gateway.models.billing_statement import BillingStatement
from gateway.models.budget import BudgetRow
from gateway.models.journal_cursor import JournalCursor
from gateway.models.member import Member
from gateway.models.offboarding import Offboarding, OffboardingState
from gateway.models.placement import Placement, PlacementTier
from gateway.models.placement_quota import PlacementQuota
from gateway.models.pool_rule import PoolRule
from gateway.models.price import Price
from gateway.models.price_book_version import PriceBookVersion
from gateway.models.proof_task import ProofTask
from gateway.models.purge_step import PurgeStep
from gateway.models.replica import Replica, ReplicaSource, ReplicaState
from gateway.models.request_event import RequestEvent
from gateway.models.request_minute import RequestMinute
from gateway.models.retention_rule import RetentionRule
from gateway.models.rollout import Rollout, RolloutState
from gateway.models.rollout_event import RolloutEvent
from gateway.models.schema_support import SchemaSupport
from gateway.models.storage_hold import StorageHold
from gateway.models.store_check import CheckState, StoreCheck
from gateway.models.tenant import Lifecycle, Tenant, TenantStatus
from gateway.models.upload import Upload
from gateway.models.usage_arrival import UsageArrival
from gateway.models.usage_charge import UsageCharge
from gateway.models.usage_drain import UsageDrain
from gateway.models.usage_ledger import UsageLedger
from gateway.models.usage_rollup import UsageRollup
from gateway.models.usage_staging import UsageStaging
from gateway.models.usage_uncounted import UsageUncounted
from gateway.models.usage_unpriced import UsageUnpriced
from gateway.models.webhook_delivery import WebhookDelivery
from gateway.models.webhook_endpoint import WebhookEndpoint
from gateway.models.webhook_event import WebhookEvent

__all__ = [
    "Adapter",
    "AdapterFacts",
    "AdapterProof",
    "AdapterShare",
    "AdapterVersion",
    "Admin",
    "AdminIdentity",
    "AdminToken",
    "Alias",
    "ApiKey",
    "ArtefactPurge",
    "ArtefactPurgeReplica",
    "AuditEvent",
    "AuditLink",
    "Base",
    "BaseModel",
    "BaseUpgrade",
    "BillingExport",
    "BillingPeriod",
    "BillingStatement",
    "BudgetRow",
    "CheckState",
    "JournalCursor",
    "Lifecycle",
    "Member",
    "Offboarding",
    "OffboardingState",
    "Placement",
    "PlacementQuota",
    "PlacementTier",
    "PoolRule",
    "Price",
    "PriceBookVersion",
    "ProofTask",
    "PurgeStep",
    "Replica",
    "ReplicaPurge",
    "ReplicaSource",
    "ReplicaState",
    "RequestEvent",
    "RequestMinute",
    "RetentionRule",
    "Rollout",
    "RolloutEvent",
    "RolloutState",
    "SchemaSupport",
    "StorageHold",
    "StoreCheck",
    "Tenant",
    "TenantStatus",
    "UpgradeState",
    "Upload",
    "UsageArrival",
    "UsageCharge",
    "UsageDrain",
    "UsageLedger",
    "UsageRollup",
    "UsageStaging",
    "UsageUncounted",
    "UsageUnpriced",
    "VersionState",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEvent",
]
