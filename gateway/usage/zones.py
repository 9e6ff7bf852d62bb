"""Days of a time zone as instants. The database is never asked what a zone is: one tz database rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones


class Period(StrEnum):
    """Windows that have a name, so that each page means the same by it: whole days of a zone, up to today."""

    LAST_7_DAYS = "last_7_days"
    LAST_31_DAYS = "last_31_days"
    THIS_MONTH = "this_month"
    LAST_MONTH = "last_month"


class UnknownZone(ValueError):
    """No such IANA name."""


def zone_of(name: str) -> ZoneInfo:
    """`Europe/Vienna`; an offset such as `+02:00` is none: it is wrong for half of the year. Raises
    `UnknownZone`."""
    if name not in _names():
        raise UnknownZone(name)
    return ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class Window:
    """Days of a zone, both included; day i is [edges[i], edges[i + 1])."""

    zone: str
    days: list[date]
    edges: list[datetime]  # UTC

    @property
    def start(self) -> datetime:
        return self.edges[0]

    @property
    def end(self) -> datetime:
        return self.edges[-1]


def window_of(zone: ZoneInfo, first: date, last: date) -> Window:
    """A day begins with its first quarter of an hour, whatever the clocks do to midnight. A date that a zone
    left out (it crossed the date line) is a day without hours: two of its edges are equal."""
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    edges = [_midnight(zone, day) for day in [*days, last + timedelta(days=1)]]
    return Window(zone.key, days, _ascending(edges))


def days_of(period: Period, now: date) -> tuple[date, date]:
    """Its first and its last day, where it is the day `now`."""
    begins = now.replace(day=1)
    match period:
        case Period.LAST_7_DAYS:
            return now - timedelta(days=6), now
        case Period.LAST_31_DAYS:
            return now - timedelta(days=30), now
        case Period.THIS_MONTH:
            return begins, now
        case Period.LAST_MONTH:
            last = begins - timedelta(days=1)
            return last.replace(day=1), last


def today(zone: ZoneInfo) -> date:
    return datetime.now(zone).date()


def _midnight(zone: ZoneInfo, day: date) -> datetime:
    """Where midnight happens twice the first one; where it is skipped, the moment of the jump."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _ascending(edges: Sequence[datetime]) -> list[datetime]:
    ordered = list(edges)
    for place in range(1, len(ordered)):
        ordered[place] = max(ordered[place], ordered[place - 1])
    return ordered


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())
