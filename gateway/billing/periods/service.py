"""Closing a month: a job of the leader. A closed month takes nothing more; what is learned later about it is
billed in the month that is open then."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import structlog

from gateway.audit.service import SYSTEM, Change, record
from gateway.billing.charging import repository as charging
from gateway.billing.metrics import CLOSING_BLOCKED, COMPLETE_UNTIL
from gateway.billing.months import end_of, month_text, start_of
from gateway.billing.periods import repository
from gateway.billing.periods.blocked import Blocked, look
from gateway.db import Database, SystemRead, SystemWrite
from gateway.models import BillingPeriod
from gateway.usage.watermark import journals_complete_until

log = structlog.get_logger(__name__)

DAY = timedelta(days=1)


class Closing:
    """Closes each month that is over, complete and agrees with the ledger, `grace` after its end."""

    def __init__(self, db: Database, grace: timedelta) -> None:
        self._db = db
        self._grace = grace

    async def run_once(self, now: datetime | None = None) -> int:
        """Gives the number of months closed. Raises `Unavailable`."""
        closed = 0
        while (month := await self._ended(now or datetime.now(UTC))) is not None:
            if not await self._close(month):
                break
            closed += 1
        return closed

    async def _ended(self, now: datetime) -> date | None:
        """The oldest open month, once its time and the grace have passed."""
        async with self._db.system_reader() as session:
            until = await journals_complete_until(session)
            if until is not None:
                COMPLETE_UNTIL.set(until.timestamp())
            month = await repository.oldest_open(session)
        _tell(None)
        return month if month is not None and end_of(month) + self._grace <= now else None

    async def _close(self, month: date) -> bool:
        why = await self.why_open(month)
        if why is None:  # and again with the lock, under which no charge is added
            async with self._db.system_session() as session:
                await charging.lock(session)
                if month in await charging.closed_months(session):
                    return True
                until = await journals_complete_until(session)
                why = await self._blocked(session, month, until)
                if why is None and until is not None:
                    await _close(session, month, until)
        _tell(why)
        if why is not None:
            log.warning("month_not_closed", month=month_text(month), reason=str(why))
        return why is None

    async def why_open(self, month: date) -> Blocked | None:
        """Why the month can't be closed now; None when it can."""
        async with self._db.system_reader() as session:
            why = await self._blocked(session, month, await journals_complete_until(session))
            tenants = [] if why is not None else await repository.tenants(session)
        for tenant in tenants:
            if not await self._agrees(tenant, month):
                log.error("charges_differ", tenant=str(tenant), month=month_text(month))
                return Blocked.DIFFERENT
        return why

    async def _blocked(self, session: SystemRead, month: date, until: datetime | None) -> Blocked | None:
        return (await look(session, month, until)).blocked(month, self._grace)

    async def _agrees(self, tenant: UUID, month: date) -> bool:
        """Day by day, so that no statement takes long."""
        start = start_of(month)
        while start < end_of(month):
            async with self._db.system_reader() as session:
                if not await repository.agrees(session, tenant, start, start + DAY):
                    return False
            start += DAY
        return True


async def _close(session: SystemWrite, month: date, until: datetime) -> None:
    period = BillingPeriod(
        month=month, complete_until=until, through_seq=await repository.last_charge(session)
    )
    found = await repository.totals(session, month)
    await repository.close(session, period, found, [invoice_id(each.tenant, month) for each in found])
    details = {"statements": len(found), "through_seq": period.through_seq}
    record(session, SYSTEM, Change("billing_period.close", month_text(month), None, details))
    log.info("month_closed", month=month_text(month), num_statements=len(found))


def invoice_id(tenant: UUID, month: date) -> str:
    """The same whoever closes the month, and however often it is tried."""
    digest = hashlib.sha256(f"{tenant}|{month_text(month)}".encode()).hexdigest()
    return f"MT-{month:%Y%m}-{digest[:12]}"


def _tell(why: Blocked | None) -> None:
    for reason in Blocked:
        CLOSING_BLOCKED.labels(str(reason)).set(reason is why)
