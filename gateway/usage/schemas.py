"""What a tenant sees of its usage."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from uuid import UUID

import msgspec

from gateway.billing.money import amount_text
from gateway.usage.repository import Totals, UsageLine
from gateway.usage.zones import Window


class UsageRow(msgspec.Struct, frozen=True):
    """Billed tokens of one day of the zone and one adapter; `adapter` null = the base, `owner/name` = another
    tenant's. `amount`: their exact
    cost, a decimal with up to twelve places; null where no price covers any of them yet."""

    day: date
    adapter: str | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt tokens
    amount: str | None

    @classmethod
    def of(cls, line: UsageLine, owners: Mapping[UUID, str]) -> UsageRow:
        owner = "" if line.owner is None else f"{owners.get(line.owner, line.owner)}/"
        return cls(
            line.day,
            None if line.adapter is None else f"{owner}{line.adapter}",
            line.requests,
            line.prompt_tokens,
            line.completion_tokens,
            line.cached_tokens,
            None if line.amount is None else amount_text(line.amount),
        )


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of [start, end), by the end of the requests. `complete_until`: whatever ended before is in them;
    null = nobody knows yet. What is unknown or has no price is not in the sums and never counted as zero."""

    first: date
    last: date
    zone: str
    start: datetime
    end: datetime
    complete_until: datetime | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    amount: str | None  # null = there are tokens, and no price covers any of them
    currency: str | None
    unknown_requests: int  # attempts that nobody could count yet
    has_unpriced: bool  # some tokens above are in no amount: there was no price for them
    data: list[UsageRow]

    @classmethod
    def of(cls, window: Window, found: Totals, owners: Mapping[UUID, str]) -> UsageReport:
        lines = found.lines
        return cls(
            first=window.days[0],
            last=window.days[-1],
            zone=window.zone,
            start=window.start,
            end=window.end,
            complete_until=found.complete_until,
            requests=sum(line.requests for line in lines),
            prompt_tokens=sum(line.prompt_tokens for line in lines),
            completion_tokens=sum(line.completion_tokens for line in lines),
            cached_tokens=sum(line.cached_tokens for line in lines),
            amount=_whole_amount(found),
            currency=found.currency,
            unknown_requests=found.unknown_requests,
            has_unpriced=found.has_unpriced,
            data=[UsageRow.of(line, owners) for line in lines],
        )


def _whole_amount(found: Totals) -> str | None:
    amounts = [line.amount for line in found.lines if line.amount is not None]
    return None if found.has_unpriced and not amounts else amount_text(sum(amounts))
