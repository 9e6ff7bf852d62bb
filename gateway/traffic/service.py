"""Rules of reading figures: what window, in which steps, and how they are estimated."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor
from typing import Final, Literal
from uuid import UUID

from gateway.config import Settings
from gateway.db import Database
from gateway.errors import BadRequest
from gateway.paging import moment
from gateway.principal import TenantId
from gateway.traffic import repository
from gateway.traffic.histograms import ERROR, LEAST_MS, MOST_MS
from gateway.traffic.minute import HOUR_S, MINUTE_S, QUARTER_S
from gateway.traffic.repository import Look
from gateway.traffic.schemas import RequestMetrics
from gateway.traffic.telling import told

MOST_STEPS: Final = 1_500
MOST_STEPS_BY: Final = 150
"""Where there are many series."""
MOST_SERIES: Final = 20
LONGEST_WINDOW: Final = timedelta(days=366)
LATE_S: Final = 10.0
"""Workers write what they counted at least so often."""

By = Literal["adapter", "tenant"]

_SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Kept:
    """How far back rows of a minute and of a quarter go, in seconds."""

    minutes_s: int
    quarters_s: int

    @classmethod
    def of(cls, settings: Settings) -> Kept:
        return cls(settings.request_minutes_h * HOUR_S, settings.request_quarters_days * 24 * HOUR_S)

    def finest_s(self, window_s: int) -> int:
        """What all of a window is kept in, or was a while ago: what is summed up is not taken apart."""
        if window_s <= self.minutes_s - HOUR_S:
            return MINUTE_S
        return QUARTER_S if window_s <= self.quarters_s - HOUR_S else HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As a client writes it: `window` up to now, or from `since` to `until` (now, when absent)."""

    window: str = "1h"
    since: datetime | None = None
    until: datetime | None = None
    step: str | None = None
    by: By | None = None
    points: bool = True

    def span(self, now: int) -> tuple[int, int]:
        """Unix seconds. Raises `BadRequest`."""
        if self.since is None:
            if self.until is not None:
                raise BadRequest("'until' goes with 'since'.", param="until", code="invalid_value")
            return now - _seconds(self.window, "window"), now
        since = floor((moment(self.since, "since") or self.since).timestamp())
        ends = moment(self.until, "until")
        until = now if ends is None else min(now, ceil(ends.timestamp()))
        if since >= until:
            raise BadRequest(
                "'since' must be before 'until', and before now.", param="since", code="invalid_value"
            )
        return since, until


def look_of(asked: Asked, *, tenant: TenantId | None, kept: Kept, now: datetime) -> Look:
    """What was asked for in whole steps, up to the end of this minute at most. Raises `BadRequest`."""
    last = int(now.timestamp() + 1)
    since, until = asked.span(last)
    window_s = until - since
    if timedelta(seconds=window_s) > LONGEST_WINDOW:
        param = "window" if asked.since is None else "since"
        raise BadRequest("At most 366 days at a time.", param=param, code="invalid_value")
    most = MOST_STEPS_BY if asked.by and asked.points else MOST_STEPS
    step_s = _seconds(asked.step, "step") if asked.step is not None else _fitting(window_s)
    if step_s % MINUTE_S or step_s > max(window_s, MINUTE_S):
        raise BadRequest(
            "'step' is a whole number of minutes, and not longer than the window.",
            param="step",
            code="invalid_value",
        )
    finest_s = kept.finest_s(last - since)
    step_s = -(-step_s // finest_s) * finest_s
    end_s = -(-until // step_s) * step_s
    start_s = since // step_s * step_s if asked.since else end_s - -(-window_s // step_s) * step_s
    if (end_s - start_s) // step_s > most:
        raise BadRequest(f"At most {most} steps: make them longer.", param="step", code="invalid_value")
    return Look(
        start=datetime.fromtimestamp(start_s, UTC),
        end=datetime.fromtimestamp(end_s, UTC),
        step_s=step_s,
        by=asked.by or "all",
        most_series=MOST_SERIES,
        tenant=tenant,
        points=asked.points,
    )


async def metrics(db: Database, look: Look) -> RequestMetrics:
    """Of one tenant by its own role, of all by the system's. One query of figures, at most five seconds long;
    raises `Unavailable` beyond that."""
    complete_until = min(look.end, datetime.now(UTC) - timedelta(seconds=LATE_S))
    named: dict[UUID, str] = {}
    if look.tenant is None:
        async with db.system_reader() as system:
            rows = await repository.series(system, look)
            if look.by != "all":
                named = await repository.names(system, {row.tenant for row in rows if row.tenant is not None})
    else:
        async with db.tenant_reader(TenantId(look.tenant)) as session:
            rows = await repository.series(session, look)
    return RequestMetrics(
        start=look.start,
        end=look.end,
        complete_until=complete_until,
        step_s=look.step_s,
        by="adapter" if look.by == "adapter" else "tenant" if look.by == "tenant" else None,
        error_factor=round(ERROR, 4),
        least_ms=LEAST_MS,
        most_ms=round(MOST_MS, 1),
        data=await asyncio.to_thread(told, look, rows, named),
    )


def _fitting(window_s: int) -> int:
    """About a hundred steps."""
    for step_s in (60, 300, 900, HOUR_S, 6 * HOUR_S):
        if window_s <= 100 * step_s:
            return step_s
    return 86_400


def _seconds(text: str, param: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadRequest(
            f"'{param}' is a number with s, m, h or d, as 15m or 7d.", param=param, code="invalid_value"
        )
    return int(match[1]) * _UNIT_S[match[2]]
