"""Why an ended month stays open: asked by the job that closes it, and by who wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

from gateway.billing.months import end_of
from gateway.billing.periods import repository
from gateway.db import SystemRead


class Blocked(StrEnum):
    INCOMPLETE = "incomplete"  # usage of it may still be on its way
    STALE = "stale"  # the charging job has not worked off what came
    UNCOUNTED = "uncounted"  # attempts of which nobody knows the count; settled within a day
    UNPRICED = "unpriced"  # usage from before the first price book version
    DIFFERENT = "different"  # charges and ledger disagree: a fault


@dataclass(frozen=True, slots=True)
class Open:
    """What of an open month is not in its amounts."""

    until: datetime | None
    waiting: int
    uncounted: int
    unpriced: int

    def blocked(self, month: date, grace: timedelta) -> Blocked | None:
        """But for `DIFFERENT`, which takes a look at all that it holds."""
        if self.until is None or self.until < end_of(month) + grace:
            return Blocked.INCOMPLETE
        if self.waiting:
            return Blocked.STALE
        if self.uncounted:
            return Blocked.UNCOUNTED
        return Blocked.UNPRICED if self.unpriced else None


async def look(session: SystemRead, month: date, until: datetime | None) -> Open:
    """`until`: taken before, so that what it speaks of is visible here."""
    return Open(
        until,
        await repository.num_waiting(session, month),
        await repository.num_uncounted(session, month),
        await repository.num_unpriced(session, month),
    )
