"""Billing periods are months in UTC, and charges lie in quarters of an hour."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

BUCKET: Final = timedelta(minutes=15)
"""Each zone's offset since 1972 is a multiple of it, so that any zone's day is a set of whole buckets."""

_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")


def parse_month(text: str) -> date:
    """`2026-11` → its first day. Raises ValueError."""
    found = _MONTH.fullmatch(text)
    if found is None:
        raise ValueError("a month is written as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def month_text(month: date) -> str:
    return f"{month:%Y-%m}"


def month_of(moment: datetime) -> date:
    """The month (UTC) in which the moment lies."""
    return moment.astimezone(UTC).date().replace(day=1)


def next_month(month: date) -> date:
    return (month + timedelta(days=31)).replace(day=1)


def start_of(month: date) -> datetime:
    return datetime(month.year, month.month, month.day, tzinfo=UTC)


def end_of(month: date) -> datetime:
    """Exclusive."""
    return start_of(next_month(month))


def bucket_of(moment: datetime) -> datetime:
    """Start of the quarter of an hour in which the moment lies; twin of the database's `motet_bucket`."""
    moment = moment.astimezone(UTC)
    return moment.replace(minute=moment.minute - moment.minute % 15, second=0, microsecond=0)


def is_bucket(moment: datetime) -> bool:
    return bucket_of(moment) == moment
