"""All SQL of the price book. Operators and control only: a price of one adapter names its owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import func, select, text

from gateway.billing.price_book.prices import Book, Edition, ModelKind, PriceRow
from gateway.db import SystemRead, SystemWrite
from gateway.models import Price, PriceBookVersion

LOCK: Final = 0x6D6F7470  # "motp": versions are numbered one after the other


async def lock(session: SystemWrite) -> None:
    """Until the transaction ends."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


async def last_version(session: SystemRead) -> PriceBookVersion | None:
    query = select(PriceBookVersion).order_by(PriceBookVersion.version.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def add(session: SystemWrite, version: PriceBookVersion, rows: Sequence[PriceRow]) -> None:
    session.add(version)
    await session.flush()
    session.add_all(_stored(version.version, row) for row in rows)
    await session.flush()
    await session.refresh(version)


async def page(
    session: SystemRead,
    before: int | None,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[PriceBookVersion]:
    """Newest first, of those made in [since, until)."""
    query = select(PriceBookVersion).order_by(PriceBookVersion.version.desc()).limit(limit)
    if before is not None:
        query = query.where(PriceBookVersion.version < before)
    if since is not None:
        query = query.where(PriceBookVersion.created_at >= since)
    if until is not None:
        query = query.where(PriceBookVersion.created_at < until)
    return list(await session.scalars(query))


async def find(session: SystemRead, version: int) -> PriceBookVersion | None:
    query = select(PriceBookVersion).where(PriceBookVersion.version == version)
    return (await session.scalars(query)).one_or_none()


async def rows_of(session: SystemRead, version: int) -> list[PriceRow]:
    """In the order in which they were given: ids are UUIDv7."""
    query = select(Price).where(Price.version == version).order_by(Price.id)
    return [_row(price) for price in await session.scalars(query)]


async def count(session: SystemRead) -> int:
    return int(await session.scalar(select(func.count()).select_from(PriceBookVersion)) or 0)


async def beginnings(session: SystemRead) -> list[tuple[datetime, int]]:
    """When each version begins to hold, and its number."""
    query = select(PriceBookVersion.effective_from, PriceBookVersion.version)
    return [(begins, version) for begins, version in await session.execute(query)]


async def read_book(session: SystemRead, known: Book | None = None) -> Book:
    """Every version with its rows; those of `known` are not read again, for they never change."""
    editions = [] if known is None else known.editions
    after = max((edition.version for edition in editions), default=0)
    new = select(PriceBookVersion).where(PriceBookVersion.version > after)
    versions = list(await session.scalars(new))
    if known is not None and not versions:
        return known
    rows: dict[int, list[PriceRow]] = defaultdict(list)
    priced = select(Price).where(Price.version > after).order_by(Price.id)
    for price in await session.scalars(priced):
        rows[price.version].append(_row(price))
    editions += [
        Edition(each.version, each.currency, each.effective_from, tuple(rows[each.version]))
        for each in versions
    ]
    return Book(editions)


def _row(price: Price) -> PriceRow:
    return PriceRow(
        id=price.id,
        kind=ModelKind(price.model_kind),
        base_id=price.base_id,
        owner_id=price.owner_id,
        adapter_name=price.adapter_name,
        service_class=price.service_class,
        input=price.input,
        cached_input=price.cached_input,
        output=price.output,
        answer_input=price.answer_input,
        answer_output=price.answer_output,
    )


def _stored(version: int, row: PriceRow) -> Price:
    return Price(
        id=row.id,
        version=version,
        model_kind=str(row.kind),
        base_id=row.base_id,
        owner_id=row.owner_id,
        adapter_name=row.adapter_name,
        service_class=row.service_class,
        input=row.input,
        cached_input=row.cached_input,
        output=row.output,
        answer_input=row.answer_input,
        answer_output=row.answer_output,
    )
