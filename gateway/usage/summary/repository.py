"""The sums, in one statement over rollups and charges, so that its cost grows with neither the ledger nor the
page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, TextClause, select, text

from gateway.db import SystemRead, TenantRead
from gateway.models import ApiKey
from gateway.usage.zones import Window


class By(StrEnum):
    ADAPTER = "adapter"
    KEY = "key"
    SERVICE_CLASS = "service_class"


_COLUMNS: Final[Mapping[By, str]] = {
    By.ADAPTER: "adapter_name AS name, nullif(owner_id, tenant_id) AS owner",
    By.KEY: "key_id AS name, CAST(NULL AS uuid) AS owner",
    By.SERVICE_CLASS: "service_class AS name, CAST(NULL AS uuid) AS owner",
}


def _statement(by: By) -> TextClause:
    window = "tenant_id = :tenant AND bucket >= :start AND bucket < :end"
    day = "width_bucket(bucket, CAST(:edges AS timestamptz[])) AS day"
    return text(
        f"""
        WITH used AS (
          SELECT {day}, {_COLUMNS[by]}, requests, prompt_tokens AS prompt, completion_tokens AS completion,
                 cached_tokens AS cached, 0::bigint AS charged, NULL::numeric AS amount,
                 NULL::text AS currency
          FROM usage_rollups WHERE {window}
          UNION ALL
          SELECT {day}, {_COLUMNS[by]}, 0, 0, 0, 0, input_tokens + cached_tokens + output_tokens, amount,
                 currency
          FROM usage_charges WHERE {window}
        )
        SELECT grouping(day) = 0 AS of_day, grouping(name) = 0 AS of_group, day, name, owner,
               coalesce(sum(requests), 0) AS requests, coalesce(sum(prompt), 0) AS prompt,
               coalesce(sum(completion), 0) AS completion, coalesce(sum(cached), 0) AS cached,
               coalesce(sum(charged), 0) AS charged, sum(amount) AS amount, min(currency) AS currency
        FROM used GROUP BY GROUPING SETS ((day), (name, owner), ())
        """  # noqa: S608  names are this file's
    )


_STATEMENTS: Final = {by: _statement(by) for by in By}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Billed requests and tokens. `charged`: those of the tokens that a price covers; `amount`: what they
    cost, in units of 10⁻¹² of the currency."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    charged: int = 0
    amount: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(
            requests=self.requests + other.requests,
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            charged=self.charged + other.charged,
            amount=self.amount + other.amount,
        )

    @property
    def tokens(self) -> int:
        """Cached ones are of the prompt."""
        return self.prompt + self.completion

    def __bool__(self) -> bool:
        return self != Sum()


Group = tuple[str | None, UUID | None]
"""A name and, of another tenant's adapter, its owner; the name of the base itself is None."""


@dataclass(frozen=True, slots=True)
class Sums:
    """`days`: of the window, by their place in it."""

    total: Sum
    currency: str | None
    days: dict[int, Sum]
    groups: dict[Group, Sum]


async def sums(session: TenantRead, tenant: UUID, window: Window, by: By) -> Sums:
    """Probes and the like are not in them. All of one moment: it is one statement."""
    given = {"tenant": tenant, "edges": window.edges, "start": window.start, "end": window.end}
    rows = list(await session.execute(_STATEMENTS[by], given))
    whole = next(row for row in rows if not row.of_day and not row.of_group)
    groups = {(row.name, row.owner): _sum(row) for row in rows if row.of_group}
    return Sums(
        total=_sum(whole),
        currency=whole.currency,
        days={row.day - 1: _sum(row) for row in rows if row.of_day},
        groups={group: found for group, found in groups.items() if found},
    )


async def key_names(session: SystemRead, tenant: UUID, keys: Collection[str]) -> dict[str, str]:
    """Of the tenant's keys, as long as there are rows of them."""
    if not keys:
        return {}
    query = select(ApiKey.key_id, ApiKey.name).where(ApiKey.tenant_id == tenant, ApiKey.key_id.in_(keys))
    return {row.key_id: row.name for row in await session.execute(query)}


def _sum(row: Row[Any]) -> Sum:
    return Sum(
        requests=int(row.requests),
        prompt=int(row.prompt),
        completion=int(row.completion),
        cached=int(row.cached),
        charged=int(row.charged),
        amount=int(row.amount or 0),
    )
