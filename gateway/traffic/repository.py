"""All SQL of figures by the minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy import TextClause, select, text

from gateway.db import SystemRead, SystemWrite, TenantRead
from gateway.models import Tenant
from gateway.traffic.minute import ALL, COUNTS, HISTOGRAMS, PLATFORM, TOKENS, MinuteRow

MOST_MS: Final = 5_000
TENANTS_AT_ONCE: Final = 50

_SUMS: Final = (*COUNTS, *TOKENS)
_KEY: Final = ("tenant_id", "at", "adapter", "source")
_NAMES: Final = ("tenant_id", "at", "adapter", "source", "sequence", "span_s", *_SUMS, *HISTOGRAMS)
_ALL = ", ".join(_NAMES)

_PUT = text(
    f"INSERT INTO request_minutes ({_ALL}) SELECT {_ALL}"  # noqa: S608  names are this file's
    " FROM json_populate_recordset(NULL::request_minutes, CAST(:rows AS json))"
    f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _NAMES if name not in _KEY)
    + " WHERE request_minutes.sequence < EXCLUDED.sequence"
)

_UNNEST = "unnest({of}ttft, {of}inter_token, {of}queue, {of}total) WITH ORDINALITY AS b(c0, c1, c2, c3, n)"
_BUCKET_SUMS = ", ".join(f"coalesce(sum(c{n}), 0) AS c{n}" for n in range(len(HISTOGRAMS)))
_ARRAYS = ", ".join(f"array_agg(c{n} ORDER BY n) AS {name}" for n, name in enumerate(HISTOGRAMS))

# The earliest span that is over and has finer rows, of some tenants: all rows go and their sum comes, in one
# statement, and takes along the sum of before if there is one. Every request has a total, so no row is
# without buckets.
_COARSEN = text(
    f"""
    WITH slot AS (
      SELECT date_bin(:span, min(at), '1970-01-01Z') AS at FROM request_minutes
      WHERE span_s = :finer AND at < :before
    ), chosen AS (
      SELECT DISTINCT m.tenant_id, slot.at FROM slot JOIN request_minutes m ON m.at >= slot.at
      AND m.at < slot.at + :span WHERE m.span_s = :finer LIMIT {TENANTS_AT_ONCE}
    ), gone AS (
      DELETE FROM request_minutes m USING chosen s
      WHERE m.tenant_id = s.tenant_id AND m.at >= s.at AND m.at < s.at + :span
      RETURNING s.at AS slot, m.*
    ), sums AS (
      SELECT tenant_id, slot, adapter, {", ".join(f"sum({name})::bigint AS {name}" for name in _SUMS)}
      FROM gone GROUP BY 1, 2, 3
    ), buckets AS (
      SELECT tenant_id, slot, adapter, n, {_BUCKET_SUMS} FROM gone, {_UNNEST.format(of="gone.")}
      GROUP BY 1, 2, 3, 4
    ), arrays AS (
      SELECT tenant_id, slot, adapter, {_ARRAYS} FROM buckets GROUP BY 1, 2, 3
    )
    INSERT INTO request_minutes ({_ALL})
    SELECT s.tenant_id, s.slot, s.adapter, '00000000-0000-0000-0000-000000000000', 0, :span_s,
           {", ".join(f"s.{name}" for name in _SUMS)},
           {", ".join(f"a.{name}::integer[]" for name in HISTOGRAMS)}
    FROM sums s JOIN arrays a USING (tenant_id, slot, adapter)
    """  # noqa: S608  names are this file's
)
_FORGET = text("DELETE FROM request_minutes WHERE at < :before")
_BRIEFLY = text(f"SELECT set_config('statement_timeout', '{MOST_MS}', true), set_config('jit', 'off', true)")
"""Compiling takes longer than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """[start, end) in steps, of one tenant or of all (None); `by`: `all`, `adapter` or `tenant`."""

    start: datetime
    end: datetime
    step_s: int
    by: str
    most_series: int
    tenant: UUID | None
    points: bool = True  # false: only what each series comes to


async def put(session: SystemWrite, rows: Sequence[MinuteRow]) -> None:
    """A worker's cells as they are now; one that is there under a greater sequence stays."""
    await session.execute(_PUT, {"rows": msgspec.json.encode(rows).decode()})


async def coarsen(session: SystemWrite, *, finer_s: int, span_s: int, before: datetime) -> int:
    """Rows of `finer_s` become rows of `span_s`: those of the earliest span that was over `before` then, of
    up to `TENANTS_AT_ONCE` tenants. Gives how many came; 0: there is nothing to do."""
    given = {
        "finer": finer_s,
        "span": timedelta(seconds=span_s),
        "span_s": span_s,
        "before": datetime.fromtimestamp(before.timestamp() // span_s * span_s, UTC),
    }
    done = await session.execute(_COARSEN, given)
    return int(done.rowcount)  # type: ignore[attr-defined]  # a CursorResult, as every INSERT's


async def forget(session: SystemWrite, before: datetime) -> int:
    done = await session.execute(_FORGET, {"before": before})
    return int(done.rowcount)  # type: ignore[attr-defined]  # a CursorResult, as every DELETE's


async def series(session: TenantRead | SystemRead, look: Look) -> list[Any]:
    """A row for each step and series that has something: `step`, `tenant`, `key`, the sums, and the
    histograms as those buckets that are not empty (`numbers`, from 1). With `by` the largest series by
    requests, and under the key `(all)` what all of them come to together. One statement."""
    await session.execute(_BRIEFLY)
    given: dict[str, Any] = {"start": look.start, "end": look.end, "whole": look.tenant or PLATFORM}
    if look.points:
        given["step"] = timedelta(seconds=look.step_s)
    if look.by != "all":
        given["most"] = look.most_series
    return list(await session.execute(_looking(look), given))


async def names(session: SystemRead, tenants: Iterable[UUID]) -> dict[UUID, str]:
    found = await session.execute(select(Tenant.id, Tenant.name).where(Tenant.id.in_([*tenants])))
    return {row.id: row.name for row in found}


def _looking(look: Look) -> TextClause:
    by, start = look.by, "CAST(:start AS timestamptz)"
    window = "m.at >= :start AND m.at < :end"
    those = f"{window} AND m.tenant_id {'<>' if look.tenant is None else '='} :whole"
    step = f"date_bin(CAST(:step AS interval), m.at, {start}) AS step" if look.points else f"{start} AS step"
    everything = f"""
          SELECT {step}, NULL::uuid AS tenant, '{ALL}' AS key, m.*
          FROM request_minutes m WHERE {window} AND m.tenant_id = :whole AND m.adapter = '{ALL}'"""  # noqa: S608
    largest, named = "", everything
    if by != "all":
        rows = f"{those} AND m.adapter {'<>' if by == 'adapter' else '='} '{ALL}'"
        largest = f"""largest AS (
          SELECT m.tenant_id, m.adapter FROM request_minutes m WHERE {rows}
          GROUP BY 1, 2 ORDER BY sum({" + ".join(COUNTS)}) DESC, 1, 2 LIMIT :most
        ), """  # noqa: S608  names are this file's
        named = f"""{everything}
          UNION ALL
          SELECT {step}, m.tenant_id, {"m.adapter" if by == "adapter" else "''"}, m.*
          FROM request_minutes m JOIN largest USING (tenant_id, adapter) WHERE {window}"""  # noqa: S608
    of = "step, tenant, key"
    return text(
        f"""
        WITH {largest}named AS ({named}
        ), sums AS (
          SELECT {of}, {", ".join(f"sum({name})::bigint AS {name}" for name in _SUMS)}
          FROM named GROUP BY 1, 2, 3
        ), buckets AS (
          SELECT {of}, n, {_BUCKET_SUMS} FROM named, {_UNNEST.format(of="named.")}
          WHERE c0 <> 0 OR c1 <> 0 OR c2 <> 0 OR c3 <> 0 GROUP BY 1, 2, 3, 4
        ), arrays AS (
          SELECT {of}, array_agg(n ORDER BY n) AS numbers, {_ARRAYS} FROM buckets GROUP BY 1, 2, 3
        )
        SELECT s.*, a.numbers, {", ".join(f"a.{name}::bigint[] AS {name}" for name in HISTOGRAMS)}
        FROM sums s JOIN arrays a ON (s.step, s.key) = (a.step, a.key)
          AND s.tenant IS NOT DISTINCT FROM a.tenant
        ORDER BY s.key, s.tenant, s.step
        """  # noqa: S608  names are this file's
    )
