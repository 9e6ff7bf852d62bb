"""The rules of statements: what the charges of a month come to, rounded once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from gateway.billing.money import amount_text, coins_text, round_half_up
from gateway.billing.months import end_of, month_of, month_text, parse_month, start_of
from gateway.billing.statements import repository
from gateway.billing.statements.schemas import LineOut, Period, StatementOut
from gateway.db import Database, TenantRead
from gateway.errors import BadRequest, Conflict
from gateway.principal import TenantId
from gateway.usage.repository import complete_until, num_unknown

MAX_LINES: Final = 5_000
"""Of one statement; whoever has more takes an export."""


class Statements:
    """A tenant reads its own, an operator any."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def periods(
        self, tenant: TenantId, before: date | None, limit: int
    ) -> tuple[datetime | None, list[Period]]:
        """Until when they are complete, and the months in which something is billed, newest first, below the
        month `before`."""
        async with self._db.tenant_snapshot(tenant) as session:
            issued = await repository.issued(session, tenant)
            totals = await repository.month_totals(session, tenant, before, limit)
            until = await complete_until(session, tenant)
        return until, [
            Period(
                each.month,
                issued[each.month].id if each.month in issued else None,
                each.currency,
                each.exact,
                round_half_up(each.exact, each.currency).units,
            )
            for each in totals
        ]

    async def statement(self, tenant: TenantId, month: date) -> StatementOut:
        """Raises `Conflict` when it has more lines than one answer holds."""
        async with self._db.tenant_snapshot(tenant) as session:
            return await _statement(session, tenant, month)


def wanted_month(text: str | None) -> date:
    """The month named, or the one that it is now. Raises `BadRequest`."""
    if text is None:
        return month_of(datetime.now(UTC))
    try:
        return parse_month(text)
    except ValueError as error:
        raise BadRequest(f"'month': {error}.", param="month", code="invalid_value") from error


async def _statement(session: TenantRead, tenant: TenantId, month: date) -> StatementOut:
    period = (await repository.closed_periods(session)).get(month)
    issued = (await repository.issued(session, tenant)).get(month)
    lines = await repository.lines(session, tenant, month, MAX_LINES + 1)
    if len(lines) > MAX_LINES:
        raise Conflict(
            f"This statement has over {MAX_LINES} lines: ask for an export of {month_text(month)}."
        )
    total = next((t for t in await repository.month_totals(session, tenant) if t.month == month), None)
    exact = total.exact if total is not None else 0
    currency = total.currency if total is not None else None
    rounded = round_half_up(exact, currency or "")
    assert sum(line.metered.amount for line in lines) == exact, "lines and charges are the same rows"
    return StatementOut(
        id=issued.id if issued is not None else None,
        status="open" if period is None else "closed",
        month=month_text(month),
        start=start_of(month),
        end=end_of(month),
        complete_until=await complete_until(session, tenant) if period is None else period.complete_until,
        issued_at=issued.issued_at if issued is not None else None,
        currency=currency,
        lines=[LineOut.of(line, month) for line in lines],
        exact=amount_text(exact),
        rounding=amount_text(rounded.residue),
        total=coins_text(rounded.units, currency or ""),
        unknown_requests=await num_unknown(session, tenant, start_of(month), end_of(month)),
        has_unpriced=await repository.has_unpriced(session, tenant, month),
    )
