"""Wire types of summed usage."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import msgspec

from gateway.billing.money import amount_text
from gateway.usage.summary.repository import By, Sum


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """Billed requests and tokens. `amount` is exact, with up to twelve decimals; null = there are tokens, and
    no price covers any of them. `unpriced_tokens` are in no amount: where there are some, it is the least
    that the tokens cost."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt tokens
    amount: str | None
    unpriced_tokens: int


class UsageOfDay(UsageSum, frozen=True, kw_only=True):
    """[start, end) is 23, 24 or 25 hours long, by the zone's clocks."""

    day: date
    start: datetime
    end: datetime


class UsageOfGroup(UsageSum, frozen=True, kw_only=True):
    """`id`: of the adapter (null = the base, `owner/name` = another tenant's), of the key, or the class;
    `name`: of a key, as long as it is known."""

    id: str | None
    name: str | None


class UsageOfOthers(UsageSum, frozen=True, kw_only=True):
    """What the groups come to that are not shown one by one."""

    groups: int


class UsageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of [start, end), by the end of the requests: `days` sum to `total`, and so do `groups` with
    `others`. `complete_until`: whatever ended before is in them; null = nobody knows yet. What nobody could
    count yet (`unknown_requests`) is in none of them."""

    first: date
    last: date
    zone: str
    start: datetime
    end: datetime
    complete_until: datetime | None
    by: By
    currency: str | None
    unknown_requests: int
    total: UsageSum
    days: list[UsageOfDay]
    groups: list[UsageOfGroup]  # the largest first
    others: UsageOfOthers | None


def sum_fields(found: Sum) -> dict[str, Any]:
    """Those of `UsageSum`."""
    unpriced = found.tokens - found.charged
    known = not found.tokens or unpriced < found.tokens
    return {
        "requests": found.requests,
        "prompt_tokens": found.prompt,
        "completion_tokens": found.completion,
        "cached_tokens": found.cached,
        "amount": amount_text(found.amount) if known else None,
        "unpriced_tokens": unpriced,
    }
