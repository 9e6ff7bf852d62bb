"""Receipts of requests that ended, made from what the ledger holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog
from redis.asyncio import Redis

from gateway.db import Database
from gateway.errors import NotFound, Unavailable
from gateway.limits.redis_store import reservation_key
from gateway.models import UsageLedger
from gateway.principal import TenantId
from gateway.receipts.keys import ReceiptKey, ReceiptKeys
from gateway.redis import TenantKeys, redis_errors
from gateway.usage import repository
from gateway.usage.drain import journalled_by
from gateway.usage.event import BILLED_OUTCOMES, TAKEN_OVER

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Receipted:
    """A receipt, and the ledger's row that it was made of."""

    text: str
    row: UsageLedger


@dataclass(frozen=True, slots=True)
class Receipts:
    """One per worker."""

    db: Database
    redis: Redis
    keys: ReceiptKeys
    journal_dir: Path

    def keys_of(self, tenant: TenantId) -> list[ReceiptKey]:
        """The current one first."""
        return self.keys.of(tenant)

    async def of_request(self, tenant: TenantId, request_id: UUID) -> Receipted | None:
        """The receipt, or None while the request is not in the ledger yet. Raises `NotFound`, alike for what
        nobody has asked and for another tenant's.

        What is on its way is looked for where it may be: among the requests that run, on this machine's disk,
        and among those whose count is waited for. On another machine's disk it is unknown for a second.
        """
        pending = await self._runs(tenant, request_id)
        pending = pending or await journalled_by(self.journal_dir, tenant, request_id)
        async with self.db.tenant_reader(tenant) as session:
            rows = await repository.attempts_of(session, [request_id])
            rows = [row for row in rows if row.tenant_id == tenant and row.purpose == "tenant"]
            waiting = await repository.uncounted_of(session, [request_id])
            pending = pending or any(each.outcome != TAKEN_OVER for each in waiting)
        answered = [row for row in rows if row.outcome in BILLED_OUTCOMES]
        if answered:
            return self._receipt(_last(answered))
        if pending:
            return None
        if not rows:
            raise NotFound("There is no such request.")
        return self._receipt(_last(rows))

    def _receipt(self, row: UsageLedger) -> Receipted:
        return Receipted(self.keys.sign(row), row)

    async def _runs(self, tenant: TenantId, request_id: UUID) -> bool:
        key = reservation_key(TenantKeys(tenant), str(request_id))
        try:
            with redis_errors():
                return bool(await self.redis.exists(key))
        except Unavailable as error:
            log.warning("running_requests_unread", reason=error.message)
            return False


def _last(rows: Sequence[UsageLedger]) -> UsageLedger:
    """The attempt that bills, if one does; else the last."""

    def place(row: UsageLedger) -> tuple[bool, int]:
        return row.billed_prompt_tokens + row.billed_completion_tokens > 0, row.attempt

    return max(rows, key=place)
