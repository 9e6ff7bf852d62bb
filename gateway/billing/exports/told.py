"""What a tenant's webhooks are told of its exports; nobody is told of those of all tenants."""

from __future__ import annotations

from gateway.billing.months import month_text
from gateway.db import SystemWrite
from gateway.models import BillingExport
from gateway.principal import TenantId
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish


async def ready(session: SystemWrite, export: BillingExport) -> None:
    """Once for each export: who asks for the same again has it already."""
    if export.tenant_id is not None:
        once = f"{EventKind.EXPORT_READY}:{export.id}"
        await publish(session, TenantId(export.tenant_id), EventKind.EXPORT_READY, _about(export), once=once)


async def failed(session: SystemWrite, export: BillingExport, reason: str) -> None:
    if export.tenant_id is not None:
        once = f"{EventKind.EXPORT_FAILED}:{export.id}"
        told = {**_about(export), "reason": reason}
        await publish(session, TenantId(export.tenant_id), EventKind.EXPORT_FAILED, told, once=once)


def _about(export: BillingExport) -> dict[str, object]:
    return {
        "export": export.id,
        "month": month_text(export.month),
        "period": "closed" if export.closed else "open",
    }
