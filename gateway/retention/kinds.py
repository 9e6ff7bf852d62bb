"""What grows old and goes. A package that keeps rows of tenants adds its kind to `KINDS`, and nothing else is
to be done: the route, the command and the sweep know it then.

What is not here has its own rule, stated where it lies: answers in Redis by their age (a tenant's
`response_cache_age_s`, 24 hours for retries); `request_events` and `request_minutes` by the settings of those
names, for all tenants alike, as whole partitions go or rows are made coarser (`gateway/control/events.py`);
events of webhooks and their finished deliveries (`gateway/webhooks/delivery.py`); the ledger, charges,
statements and the audit log stay (docs/decisions/0061).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func
from sqlalchemy.orm import QueryableAttribute

from gateway.models import AdapterVersion, ApiKey, Base, BillingExport

MAX_DAYS: Final = 3_650


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of `table` (which has a `tenant_id`) go once `age` is so many days ago; those without one stay.
    `swept` False: a job of their own ends them, and their rows stay."""

    name: str
    what: str
    table: type[Base]
    age: QueryableAttribute[Any] | ColumnElement[Any]
    default_days: int
    min_days: int = 1
    max_days: int = MAX_DAYS
    only: ColumnElement[bool] | None = None
    swept: bool = True


RETIRED_ADAPTERS: Final = Kind(
    name="retired_adapters",
    what="bytes of retired versions of adapters, which can be restored so long; by the moment they retired",
    table=AdapterVersion,
    age=AdapterVersion.retired_at,
    default_days=7,
    max_days=90,
    swept=False,  # gateway/retirement/job.py, by the moment that was told when they retired
)

KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        name="ended_keys",
        what="API keys that were revoked or have expired, by the moment of that",
        table=ApiKey,
        age=func.least(ApiKey.revoked_at, ApiKey.expires_at),  # ignores nulls
        default_days=365,
        min_days=7,
    ),
    Kind(
        name="superseded_exports",
        what="exports that were superseded or failed, by their end",
        table=BillingExport,
        age=BillingExport.finished_at,
        default_days=90,
        min_days=7,
        only=BillingExport.state.in_(("superseded", "failed")),
    ),
    RETIRED_ADAPTERS,
)


def kind_of(name: str) -> Kind | None:
    return next((kind for kind in KINDS if kind.name == name), None)
