"""All SQL of rollups and charges. The system's sessions write; who reads a tenant's uses the tenant's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.billing.charging.rating import Bucket, Charge, Grain, Line, Quantity, Rate, billed_month
from gateway.db import SystemRead, SystemWrite
from gateway.models import BillingPeriod, Tenant, UsageArrival, UsageCharge, UsageRollup, UsageUnpriced

LOCK: Final = 0x6D6F7462  # "motb": who charges and who closes a month, one after the other

_GRAIN = (
    "tenant_id",
    "bucket",
    "key_id",
    "base_id",
    "owner_id",
    "adapter_name",
    "adapter_version",
    "artefact",
    "service_class",
    "source",
)
_RATE = ("version", "price_id", "currency", "input_price", "cached_price", "output_price")
_PLACES = "unnest(CAST(:tenants AS uuid[]), CAST(:buckets AS timestamptz[])) AS place (tenant_id, bucket)"

_TAKE = text(
    """
    WITH chosen AS (
      SELECT tenant_id, bucket FROM usage_arrivals WHERE id <= :last
      GROUP BY 1, 2 ORDER BY min(id) LIMIT :most
    ), taken AS (
      DELETE FROM usage_arrivals a USING chosen c
      WHERE a.tenant_id = c.tenant_id AND a.bucket = c.bucket AND a.id <= :last
    )
    SELECT tenant_id, bucket FROM chosen
    """
)
_DROP_ROLLUPS = text(
    f"DELETE FROM usage_rollups r USING {_PLACES}"  # noqa: S608  names are this file's
    " WHERE r.tenant_id = place.tenant_id AND r.bucket = place.bucket"
)
_MAKE_ROLLUPS = text(
    f"""
    INSERT INTO usage_rollups ({", ".join(_GRAIN)}, requests, unbilled_attempts, prompt_tokens, cached_tokens,
                               completion_tokens)
    SELECT l.tenant_id, place.bucket, l.key_id, l.base_id, l.owner_id, l.adapter_name, l.adapter_version,
           l.artefact, l.service_class, l.source,
           count(*) FILTER (WHERE l.billed_prompt_tokens > 0 OR l.billed_completion_tokens > 0),
           count(*) FILTER (WHERE l.billed_prompt_tokens = 0 AND l.billed_completion_tokens = 0),
           sum(l.billed_prompt_tokens), sum(l.billed_cached_tokens), sum(l.billed_completion_tokens)
    FROM {_PLACES} JOIN usage_ledger l ON l.tenant_id = place.tenant_id AND l.ended_at >= place.bucket
         AND l.ended_at < place.bucket + interval '15 minutes'
    WHERE l.purpose = 'tenant'
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    """  # noqa: S608  names are this file's
)
_KEEP_UNPRICED = text(
    f"INSERT INTO usage_unpriced (tenant_id, bucket) SELECT tenant_id, bucket FROM {_PLACES}"  # noqa: S608  names are this file's
    " ON CONFLICT DO NOTHING"
)
_DROP_UNPRICED = text(
    f"DELETE FROM usage_unpriced u USING {_PLACES}"  # noqa: S608  names are this file's
    " WHERE u.tenant_id = place.tenant_id AND u.bucket = place.bucket"
)
_RETRY_UNPRICED = text(
    "INSERT INTO usage_arrivals (tenant_id, bucket, earliest)"
    " SELECT tenant_id, bucket, bucket FROM usage_unpriced WHERE bucket >= :effective_from"
)


async def lock(session: SystemWrite) -> None:
    """Until the transaction ends. So `seq` grows in the order of commits, and no charge meets a closing."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


async def last_arrival(session: SystemRead) -> int:
    return int(await session.scalar(select(func.max(UsageArrival.id))) or 0)


async def take_arrivals(session: SystemWrite, last: int, most: int) -> set[Bucket]:
    """Gives up to `most` buckets, and takes away their marks with an id up to `last`. The rows that a taken
    mark stands for are visible to each later statement."""
    rows = await session.execute(_TAKE, {"last": last, "most": most})
    return {(row.tenant_id, row.bucket) for row in rows}


async def rebuild_rollups(session: SystemWrite, buckets: Iterable[Bucket]) -> None:
    places = _places(buckets)
    await session.execute(_DROP_ROLLUPS, places)
    await session.execute(_MAKE_ROLLUPS, places)


async def lines_of(session: SystemRead, buckets: Iterable[Bucket]) -> list[Line]:
    columns = ", ".join(f"r.{name}" for name in _GRAIN)
    query = text(
        f"SELECT {columns}, r.requests, r.prompt_tokens, r.cached_tokens, r.completion_tokens"  # noqa: S608  names are this file's
        f" FROM usage_rollups r JOIN {_PLACES} ON r.tenant_id = place.tenant_id AND r.bucket = place.bucket"
    )
    rows = await session.execute(query, _places(buckets))
    return [
        Line(
            _grain(row),
            Quantity(
                row.requests, row.prompt_tokens - row.cached_tokens, row.cached_tokens, row.completion_tokens
            ),
        )
        for row in rows
    ]


async def charged(session: SystemRead, buckets: Iterable[Bucket]) -> list[Charge]:
    """The sums of the buckets' charges, by grain and rate; what cancels out is left out."""
    columns = ", ".join(f"c.{name}" for name in (*_GRAIN, *_RATE))
    query = text(
        f"SELECT {columns}, sum(c.requests) AS requests, sum(c.input_tokens) AS input,"  # noqa: S608  names are this file's
        " sum(c.cached_tokens) AS cached, sum(c.output_tokens) AS output"
        f" FROM usage_charges c JOIN {_PLACES} ON c.tenant_id = place.tenant_id AND c.bucket = place.bucket"
        f" GROUP BY {columns}"
    )
    rows = await session.execute(query, _places(buckets))
    found = [Charge(_grain(row), _rate(row), _quantity(row)) for row in rows]
    return [charge for charge in found if charge.quantity]


async def add_charges(
    session: SystemWrite, charges: Sequence[Charge], closed: set[date], rerating: UUID | None
) -> None:
    if not charges:
        return
    await session.execute(insert(UsageCharge), [_row(charge, closed, rerating) for charge in charges])


async def mark_unpriced(session: SystemWrite, unpriced: set[Bucket], priced: set[Bucket]) -> None:
    if unpriced:
        await session.execute(_KEEP_UNPRICED, _places(unpriced))
    if priced:
        await session.execute(_DROP_UNPRICED, _places(priced))


async def retry_unpriced(session: SystemWrite, effective_from: datetime) -> None:
    """Puts what had no price before the charging job again: a version covers it now."""
    await session.execute(_RETRY_UNPRICED, {"effective_from": effective_from})


async def num_unpriced(session: SystemRead) -> int:
    return int(await session.scalar(select(func.count()).select_from(UsageUnpriced)) or 0)


async def closed_months(session: AsyncSession) -> set[date]:
    return set(await session.scalars(select(BillingPeriod.month)))


async def buckets_between(session: SystemRead, tenant: UUID, start: datetime, end: datetime) -> list[Bucket]:
    """The tenant's buckets with usage in [start, end): 96 a day at most."""
    query = (
        select(UsageRollup.bucket)
        .where(UsageRollup.tenant_id == tenant, UsageRollup.bucket >= start, UsageRollup.bucket < end)
        .distinct()
    )
    return [(tenant, bucket) for bucket in await session.scalars(query)]


async def tenants_between(session: SystemRead, start: datetime, end: datetime) -> dict[UUID, str]:
    """Those with usage in [start, end), by id, with their names."""
    query = (
        select(UsageRollup.tenant_id, Tenant.name)
        .outerjoin(Tenant, Tenant.id == UsageRollup.tenant_id)  # a replica may name tenants that are none
        .where(UsageRollup.bucket >= start, UsageRollup.bucket < end)
        .distinct()
        .order_by(UsageRollup.tenant_id)
    )
    return {row.tenant_id: row.name or str(row.tenant_id) for row in await session.execute(query)}


def _places(buckets: Iterable[Bucket]) -> dict[str, Any]:
    ordered = sorted(buckets)
    return {"tenants": [tenant for tenant, _ in ordered], "buckets": [bucket for _, bucket in ordered]}


def _grain(row: Row[Any]) -> Grain:
    return Grain(**{name: getattr(row, name) for name in _GRAIN})


def _rate(row: Row[Any]) -> Rate:
    return Rate(
        row.version, row.price_id, row.currency, (row.input_price, row.cached_price, row.output_price)
    )


def _quantity(row: Row[Any]) -> Quantity:
    return Quantity(int(row.requests), int(row.input), int(row.cached), int(row.output))


def _row(charge: Charge, closed: set[date], rerating: UUID | None) -> dict[str, Any]:
    grain, rate, quantity = charge.grain, charge.rate, charge.quantity
    return {
        **{name: getattr(grain, name) for name in _GRAIN},
        "version": rate.version,
        "price_id": rate.price_id,
        "currency": rate.currency,
        "requests": quantity.requests,
        "input_tokens": quantity.input,
        "cached_tokens": quantity.cached,
        "output_tokens": quantity.output,
        "input_price": rate.prices[0],
        "cached_price": rate.prices[1],
        "output_price": rate.prices[2],
        "amount": Decimal(charge.amount),
        "billed_month": billed_month(grain.bucket, closed),
        "rerating": rerating,
    }
