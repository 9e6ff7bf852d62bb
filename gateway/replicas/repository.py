"""All SQL of replicas, pool rules, and the weights of a base. No tenant owns any of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import delete, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import BaseModel, PoolRule, Replica, ReplicaSource, ReplicaState
from gateway.paging import ById, Order, beyond

BY_ID: Order[ById] = Order("replicas", UUID)
MAX_ROWS: Final = 1_024


async def all_of(session: SystemRead, base_id: str) -> list[Replica]:
    """Every replica of the base, also those that were removed lately; newest first, at most `MAX_ROWS`."""
    statement = (
        select(Replica)
        .where(Replica.base_id == base_id)
        .order_by(Replica.created_at.desc(), Replica.id)
        .limit(MAX_ROWS)
    )
    return list((await session.scalars(statement)).all())


async def page(session: SystemRead, base_id: str, start: ById | None, limit: int) -> list[Replica]:
    """Those that were not removed, by id."""
    statement = (
        select(Replica)
        .where(Replica.base_id == base_id, Replica.removed_at.is_(None))
        .order_by(Replica.id)
        .limit(limit)
    )
    if start is not None:
        statement = statement.where(beyond((Replica.id,), start, descending=False))
    return list((await session.scalars(statement)).all())


async def find(session: SystemRead, base_id: str, replica: UUID) -> Replica | None:
    statement = select(Replica).where(
        Replica.base_id == base_id, Replica.id == replica, Replica.removed_at.is_(None)
    )
    return (await session.scalars(statement)).one_or_none()


async def lock(session: SystemWrite, base_id: str, replica: UUID) -> Replica | None:
    """As it is now, until the transaction ends."""
    statement = select(Replica).where(
        Replica.base_id == base_id, Replica.id == replica, Replica.removed_at.is_(None)
    )
    return (await session.scalars(statement.with_for_update())).one_or_none()


async def by_url(session: SystemWrite, url: str) -> Replica | None:
    """Locked, also when it was removed or is of another base."""
    statement = select(Replica).where(Replica.url == url).with_for_update()
    return (await session.scalars(statement)).one_or_none()


async def count(session: SystemRead, base_id: str, silent_after: timedelta) -> int:
    """Without those that were removed, or registered themselves and then fell silent."""
    statement = (
        select(func.count())
        .select_from(Replica)
        .where(
            Replica.base_id == base_id,
            Replica.removed_at.is_(None),
            or_(Replica.source != ReplicaSource.SELF, Replica.seen_at > func.now() - silent_after),
        )
    )
    return (await session.scalars(statement)).one()


async def add_listed(session: SystemWrite, base_id: str, urls: Iterable[str]) -> None:
    """Rows for what the settings list; nothing where one is there, or where the base is not known yet."""
    state, source = literal(ReplicaState.UP.value), literal(ReplicaSource.LISTED.value)
    for url in urls:
        row = select(literal(url), BaseModel.base_id, state, source).where(BaseModel.base_id == base_id)
        await session.execute(
            insert(Replica)
            .from_select(["url", "base_id", "state", "source"], row)
            .on_conflict_do_nothing(index_elements=["url"])
        )


async def change(
    session: SystemWrite, base_id: str, replica: UUID, values: Mapping[str, Any]
) -> Replica | None:
    """The replica with `values`; None when there is none."""
    statement = (
        update(Replica)
        .where(Replica.base_id == base_id, Replica.id == replica, Replica.removed_at.is_(None))
        .values(**values)
        .returning(Replica)
        .execution_options(synchronize_session=False, populate_existing=True)  # it may be locked
    )
    return (await session.scalars(statement)).one_or_none()


async def seen(session: SystemWrite, url: str, values: Mapping[str, Any]) -> None:
    await session.execute(update(Replica).where(Replica.url == url).values(seen_at=func.now(), **values))


async def still_listed(session: SystemWrite, base_id: str, urls: Iterable[str]) -> None:
    named = (Replica.base_id == base_id) & Replica.url.in_(urls)
    listed = Replica.source == ReplicaSource.LISTED
    await session.execute(update(Replica).where(named, listed).values(seen_at=func.now()))


async def purge(session: SystemWrite, base_id: str, after: timedelta, unlisted_after: timedelta) -> list[str]:
    """Deletes those that were removed so long ago, those that registered themselves and were silent so long,
    and those that no settings have listed for so long; gives their URLs."""
    long_ago = func.now() - after
    listed = Replica.source == ReplicaSource.LISTED
    over = (Replica.seen_at < long_ago) & or_(
        Replica.removed_at < long_ago, Replica.source == ReplicaSource.SELF
    )
    unlisted = Replica.seen_at < func.now() - unlisted_after
    statement = (
        delete(Replica)
        .where(Replica.base_id == base_id, or_(~listed & over, listed & unlisted))
        .returning(Replica.url)
    )
    return list((await session.scalars(statement)).all())


async def rules_of(session: SystemRead, base_id: str) -> list[PoolRule]:
    """In order."""
    statement = select(PoolRule).where(PoolRule.base_id == base_id).order_by(PoolRule.position)
    return list((await session.scalars(statement)).all())


async def replace_rules(session: SystemWrite, base_id: str, rules: Sequence[PoolRule]) -> None:
    await session.execute(delete(PoolRule).where(PoolRule.base_id == base_id))
    session.add_all(rules)


async def digests_of(session: SystemRead, base_id: str) -> list[str] | None:
    """The weights that may serve the base; None as long as none were ever seen."""
    return await session.scalar(select(BaseModel.digests).where(BaseModel.base_id == base_id))


async def set_digests(session: SystemWrite, base_id: str, digests: Sequence[str]) -> bool:
    """False when the base is unknown."""
    statement = (
        update(BaseModel)
        .where(BaseModel.base_id == base_id)
        .values(digests=list(digests))
        .returning(BaseModel.base_id)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalar(statement)) is not None


async def pin_digest(session: SystemWrite, base_id: str, digest: str) -> bool:
    """Makes the first weights that were seen the base's own; False when others were before."""
    statement = (
        update(BaseModel)
        .where(BaseModel.base_id == base_id, BaseModel.digests.is_(None))
        .values(digests=[digest])
        .returning(BaseModel.base_id)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalar(statement)) is not None
