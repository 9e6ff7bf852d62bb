"""Rules of reading figures: what window, in which steps, and how they are estimated."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, Literal

from gateway.config import Settings
from gateway.db import Database
from gateway.errors import BadRequest
from gateway.principal import TenantId
from gateway.traffic import repository
from gateway.traffic.histograms import ERROR, LEAST_MS, MOST_MS, added
from gateway.traffic.minute import COUNTS, HISTOGRAMS, HOUR_S, MINUTE_S, QUARTER_S, TOKENS
from gateway.traffic.repository import Look
from gateway.traffic.schemas import Figures, Percentiles, Point, RequestMetrics, Series

MOST_STEPS: Final = 1_500
MOST_STEPS_BY: Final = 150
"""Where there are many series."""
MOST_SERIES: Final = 20
LONGEST_WINDOW: Final = timedelta(days=366)

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


def look_of(
    window: str, step: str | None, by: By | None, *, tenant: TenantId | None, kept: Kept, now: datetime
) -> Look:
    """The window up to the end of this minute, in whole steps. Raises `BadRequest`."""
    window_s = _seconds(window, "window")
    if timedelta(seconds=window_s) > LONGEST_WINDOW:
        raise BadRequest("'window' is at most 366 days.", param="window", code="invalid_value")
    most = MOST_STEPS_BY if by else MOST_STEPS
    step_s = _seconds(step, "step") if step is not None else _fitting(window_s)
    if step_s % MINUTE_S or step_s > window_s:
        raise BadRequest(
            "'step' is a whole number of minutes, and not longer than 'window'.",
            param="step",
            code="invalid_value",
        )
    finest_s = kept.finest_s(window_s)
    step_s = -(-step_s // finest_s) * finest_s
    num_steps = -(-window_s // step_s)
    if num_steps > most:
        raise BadRequest(f"At most {most} steps: make them longer.", param="step", code="invalid_value")
    end_s = -(-int(now.timestamp() + 1) // step_s) * step_s
    return Look(
        start=datetime.fromtimestamp(end_s - num_steps * step_s, UTC),
        end=datetime.fromtimestamp(end_s, UTC),
        step_s=step_s,
        by=by or "all",
        most_series=MOST_SERIES,
        tenant=tenant,
    )


async def metrics(db: Database, look: Look) -> RequestMetrics:
    """Of one tenant by its own role, of all by the system's. One query, at most five seconds long; raises
    `Unavailable` beyond that."""
    if look.tenant is None:
        async with db.system_reader() as system:
            rows = await repository.series(system, look)
    else:
        async with db.tenant_reader(TenantId(look.tenant)) as session:
            rows = await repository.series(session, look)
    return RequestMetrics(
        start=look.start,
        end=look.end,
        step_s=look.step_s,
        by="adapter" if look.by == "adapter" else "tenant" if look.by == "tenant" else None,
        error_factor=round(ERROR, 4),
        least_ms=LEAST_MS,
        most_ms=round(MOST_MS, 1),
        data=await asyncio.to_thread(_series, rows),
    )


def _series(rows: Sequence[Any]) -> list[Series]:
    found = []
    for key, of_key in groupby(rows, key=lambda row: row.series):
        these = list(of_key)
        points = [Point(row.step, _figures([row])) for row in these]
        found.append(Series(str(key), _figures(these), points))
    return sorted(found, key=lambda one: (-one.total.requests, one.key))


def _figures(rows: Sequence[Any]) -> Figures:
    found: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in (*COUNTS, *TOKENS)}
    for name in HISTOGRAMS:
        buckets: list[int] = []
        for row in rows:
            buckets = added(buckets, getattr(row, name))
        found[f"{name}_ms"] = Percentiles.of(buckets)
    return Figures(requests=sum(found[name] for name in COUNTS), **found)


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
