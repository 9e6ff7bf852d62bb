"""All SQL of retired versions and of purges. What a tenant asks for starts from the tenant; what control goes
on with, from what is open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Row, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gateway.catalog.repository import Line
from gateway.catalog.stored import is_kept, is_restorable
from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.models import (
    Adapter,
    AdapterVersion,
    Alias,
    ArtefactPurge,
    ArtefactPurgeReplica,
    Replica,
    ReplicaPurge,
    VersionState,
)
from gateway.principal import TenantId

DONE: Final = frozenset({ReplicaPurge.PURGED, ReplicaPurge.UNVERIFIED})
ENDED: Final = DONE | {ReplicaPurge.GONE}
"""States in which nothing of a replica is waited for."""

OWING: Final = (ReplicaPurge.AWAY, ReplicaPurge.GONE)
"""States of replicas that have to purge before they serve, should they come back."""

RESTORED_AS: Final = {"proving": "uploaded"}
"""What a version is again that was retired; as it was, but for a proof that was under way."""

Purged = tuple[TenantId, str]
"""An owner and an artefact of its."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a replica said when it was asked to purge."""

    url: str
    replica_id: UUID
    state: ReplicaPurge
    reason: str | None = None


async def find_by_name(session: TenantRead, line: Line, name: str) -> Adapter | None:
    """Whatever became of its versions."""
    return await session.scalar(
        select(Adapter).where(
            Adapter.tenant_id == line.tenant, Adapter.base_id == line.base_id, Adapter.name == name
        )
    )


async def has_version(session: TenantRead, adapter: Adapter, number: int | None) -> bool:
    """Version `number`, or any, in whatever state."""
    query = select(AdapterVersion.id).where(*_of(adapter, number)).limit(1)
    return await session.scalar(query) is not None


async def retired(
    session: TenantRead, adapter: Adapter, number: int | None, limit: int
) -> tuple[list[AdapterVersion], bool]:
    """Those that can be restored, newest first; and whether any is retired at all."""
    possible = select(AdapterVersion).where(*_of(adapter, number), is_restorable())
    found = await session.scalars(possible.order_by(AdapterVersion.number.desc()).limit(limit))
    any_at_all = select(AdapterVersion.id).where(
        *_of(adapter, number), AdapterVersion.state == VersionState.RETIRED
    )
    return list(found), await session.scalar(any_at_all.limit(1)) is not None


async def ending(
    session: TenantRead, adapter: Adapter, number: int | None, limit: int
) -> Sequence[AdapterVersion]:
    """Those whose retention is over or was given up; those with bytes first, then the newest."""
    query = (
        select(AdapterVersion)
        .where(
            *_of(adapter, number),
            AdapterVersion.state == VersionState.RETIRED,
            AdapterVersion.purges_at <= func.clock_timestamp(),
        )
        .order_by(AdapterVersion.purged_at.is_not(None), AdapterVersion.number.desc())
        .limit(limit)
    )
    return (await session.scalars(query)).all()


async def restore(session: TenantWrite, adapter: Adapter, numbers: Sequence[int]) -> Sequence[AdapterVersion]:
    """Those of `numbers` that could be restored, as they were. The caller holds the locks of their
    artefacts, so that none is purged meanwhile."""
    rows = await session.scalars(
        select(AdapterVersion).where(
            AdapterVersion.adapter_id == adapter.id,
            AdapterVersion.number.in_(numbers),
            AdapterVersion.state == VersionState.RETIRED,
            AdapterVersion.purges_at > func.clock_timestamp(),
        )
    )
    found = rows.all()
    for version in found:
        before = version.state_before or VersionState.READY
        version.state = RESTORED_AS.get(before, before)
        version.state_before = version.retired_at = version.purges_at = None
    await session.flush()
    return found


async def alias_names(session: TenantRead, adapter: Adapter) -> set[str]:
    return set(await session.scalars(select(Alias.name).where(Alias.adapter_id == adapter.id)))


async def let_go(session: TenantWrite, adapter: Adapter, number: int | None) -> list[str]:
    """Gives up what retired versions have of their retention; gives all their artefacts, of those that were
    given up before too."""
    of = [*_of(adapter, number), AdapterVersion.state == VersionState.RETIRED]
    sooner = or_(AdapterVersion.purges_at.is_(None), AdapterVersion.purges_at > func.now())
    await session.execute(
        update(AdapterVersion)
        .where(*of, AdapterVersion.purged_at.is_(None), sooner)
        .values(purges_at=func.now())
        .execution_options(synchronize_session=False)
    )
    unpurged = select(AdapterVersion.artefact).where(*of, AdapterVersion.purged_at.is_(None))
    return sorted(set(await session.scalars(unpurged)))


async def keepers(session: TenantRead, tenant: TenantId, artefacts: Sequence[str]) -> dict[str, list[str]]:
    """By artefact, `name@version` of the versions that keep it: not retired, or still to be restored."""
    found = await session.execute(
        select(AdapterVersion.artefact, Adapter.name, AdapterVersion.number)
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(AdapterVersion.tenant_id == tenant, AdapterVersion.artefact.in_(artefacts), is_kept())
        .order_by(Adapter.name, AdapterVersion.number)
    )
    kept: dict[str, list[str]] = {}
    for artefact, name, number in found:
        kept.setdefault(artefact, []).append(f"{name}@{number}")
    return kept


async def begin(session: TenantWrite | SystemWrite, purged: Purged, asked_by: str) -> None:
    """A purge under way; nothing changes where one is. What an earlier one of the same content learnt of its
    replicas is forgotten: they may have loaded it since."""
    tenant, artefact = purged
    over = select(ArtefactPurge.artefact).where(
        ArtefactPurge.tenant_id == tenant,
        ArtefactPurge.artefact == artefact,
        ArtefactPurge.ended_at.is_not(None),
    )
    if await session.scalar(over) is not None:
        await forget(session, purged)
    row = {"tenant_id": tenant, "artefact": artefact, "asked_by": asked_by}
    await session.execute(insert(ArtefactPurge).values(row).on_conflict_do_nothing())


async def forget(session: TenantWrite | SystemWrite, purged: Purged) -> None:
    for table in (ArtefactPurgeReplica, ArtefactPurge):
        await session.execute(
            delete(table)
            .where(table.tenant_id == purged[0], table.artefact == purged[1])
            .execution_options(synchronize_session=False)
        )


async def find(session: TenantRead | SystemRead, purged: Purged) -> ArtefactPurge | None:
    return await session.scalar(
        select(ArtefactPurge).where(ArtefactPurge.tenant_id == purged[0], ArtefactPurge.artefact == purged[1])
    )


async def replica_states(
    session: TenantRead | SystemRead, tenant: TenantId, artefacts: Sequence[str]
) -> Sequence[ArtefactPurgeReplica]:
    query = select(ArtefactPurgeReplica).where(
        ArtefactPurgeReplica.tenant_id == tenant, ArtefactPurgeReplica.artefact.in_(artefacts)
    )
    return (await session.scalars(query.order_by(ArtefactPurgeReplica.url))).all()


async def purges_of(
    session: TenantRead, tenant: TenantId, artefacts: Sequence[str]
) -> Sequence[ArtefactPurge]:
    query = select(ArtefactPurge).where(
        ArtefactPurge.tenant_id == tenant, ArtefactPurge.artefact.in_(artefacts)
    )
    return (await session.scalars(query)).all()


async def replicas(session: SystemRead, base_id: str) -> Sequence[Row[str, UUID, str]]:
    """(url, id, source) of those that were not removed."""
    query = select(Replica.url, Replica.id, Replica.source).where(
        Replica.base_id == base_id, Replica.removed_at.is_(None)
    )
    return (await session.execute(query)).all()


async def object_gone(session: TenantWrite | SystemWrite, purged: Purged) -> None:
    await session.execute(
        update(ArtefactPurge)
        .where(ArtefactPurge.tenant_id == purged[0], ArtefactPurge.artefact == purged[1])
        .values(object_gone_at=func.coalesce(ArtefactPurge.object_gone_at, func.now()))
        .execution_options(synchronize_session=False)
    )


async def note_replicas(session: SystemWrite, purged: Purged, said: Sequence[Asked]) -> None:
    """Their states, and that the purge was tried."""
    tenant, artefact = purged
    for each in said:
        values = {"replica_id": each.replica_id, "state": each.state, "reason": each.reason}
        row = insert(ArtefactPurgeReplica).values(tenant_id=tenant, artefact=artefact, url=each.url, **values)
        await session.execute(
            row.on_conflict_do_update(
                index_elements=["tenant_id", "artefact", "url"], set_={**values, "changed_at": func.now()}
            )
        )
    await session.execute(
        update(ArtefactPurge)
        .where(ArtefactPurge.tenant_id == tenant, ArtefactPurge.artefact == artefact)
        .values(tried_at=func.clock_timestamp())
        .execution_options(synchronize_session=False)
    )


async def end(session: SystemWrite, purged: Purged) -> bool:
    """Whether it had not ended yet."""
    ended = await session.scalar(
        update(ArtefactPurge)
        .where(
            ArtefactPurge.tenant_id == purged[0],
            ArtefactPurge.artefact == purged[1],
            ArtefactPurge.ended_at.is_(None),
        )
        .values(ended_at=func.now())
        .returning(ArtefactPurge.artefact)
        .execution_options(synchronize_session=False)
    )
    return ended is not None


async def mark_purged(session: TenantWrite | SystemWrite, purged: Purged) -> list[Row[str, int]]:
    """The artefact's versions whose retention is over have no bytes from here on; gives (adapter, version)
    of those that had."""
    marked = await session.execute(
        update(AdapterVersion)
        .where(
            AdapterVersion.tenant_id == purged[0],
            AdapterVersion.artefact == purged[1],
            AdapterVersion.adapter_id == Adapter.id,
            AdapterVersion.state == VersionState.RETIRED,
            AdapterVersion.purged_at.is_(None),
            AdapterVersion.purges_at <= func.clock_timestamp(),
        )
        .values(purged_at=func.now())
        .returning(Adapter.name, AdapterVersion.number)
        .execution_options(synchronize_session=False)
    )
    return list(marked.all())


async def due(session: SystemRead, limit: int) -> list[Purged]:
    """Artefacts of versions whose retention is over, and for which no purge is under way; of each tenant in
    turn, so that one with many holds up no other."""
    under_way = exists().where(
        ArtefactPurge.tenant_id == AdapterVersion.tenant_id,
        ArtefactPurge.artefact == AdapterVersion.artefact,
        ArtefactPurge.ended_at.is_(None),
    )
    turn = func.row_number().over(
        partition_by=AdapterVersion.tenant_id, order_by=func.min(AdapterVersion.purges_at)
    )
    query = (
        select(AdapterVersion.tenant_id, AdapterVersion.artefact, turn.label("turn"))
        .where(
            AdapterVersion.purges_at <= func.clock_timestamp(),
            AdapterVersion.purged_at.is_(None),
            AdapterVersion.state == VersionState.RETIRED,
            ~under_way,
        )
        .group_by(AdapterVersion.tenant_id, AdapterVersion.artefact)
        .order_by("turn")
        .limit(limit)
    )
    return [(TenantId(tenant), artefact) for tenant, artefact, _ in await session.execute(query)]


async def under_way(session: SystemRead, limit: int) -> list[Purged]:
    """The least recently tried first."""
    query = (
        select(ArtefactPurge.tenant_id, ArtefactPurge.artefact)
        .where(ArtefactPurge.ended_at.is_(None))
        .order_by(ArtefactPurge.tried_at.nulls_first(), ArtefactPurge.asked_at)
        .limit(limit)
    )
    return [(TenantId(tenant), artefact) for tenant, artefact in await session.execute(query)]


async def come_back(session: SystemRead, urls: Sequence[str], limit: int) -> list[Purged]:
    """Purges that ended without a replica that is one of `urls`."""
    query = (
        select(ArtefactPurgeReplica.tenant_id, ArtefactPurgeReplica.artefact)
        .join(
            ArtefactPurge,
            (ArtefactPurge.tenant_id == ArtefactPurgeReplica.tenant_id)
            & (ArtefactPurge.artefact == ArtefactPurgeReplica.artefact),
        )
        .where(
            ArtefactPurgeReplica.state.in_((ReplicaPurge.HELD, *OWING)),
            ArtefactPurgeReplica.url.in_(urls),
            ArtefactPurge.ended_at.is_not(None),
        )
        .distinct()
        .limit(limit)
    )
    return [(TenantId(tenant), artefact) for tenant, artefact in await session.execute(query)]


async def num_under_way(session: SystemRead) -> int:
    return int(await session.scalar(select(func.count()).where(ArtefactPurge.ended_at.is_(None))) or 0)


async def owing(session: SystemRead) -> set[str]:
    """URLs of replicas that have something to purge before they serve."""
    query = select(ArtefactPurgeReplica.url).where(ArtefactPurgeReplica.state.in_(OWING)).distinct()
    return set(await session.scalars(query))


async def forget_ended(session: SystemWrite, after: timedelta) -> int:
    """Purges that ended so long ago, with what they remember of replicas."""
    old = ArtefactPurge.ended_at < func.now() - after
    gone = await session.execute(
        delete(ArtefactPurge)
        .where(old)
        .returning(ArtefactPurge.artefact)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def by_artefact(rows: Sequence[ArtefactPurgeReplica]) -> dict[str, list[ArtefactPurgeReplica]]:
    found: dict[str, list[ArtefactPurgeReplica]] = {}
    for row in rows:
        found.setdefault(row.artefact, []).append(row)
    return found


def _of(adapter: Adapter, number: int | None) -> tuple[ColumnElement[bool], ...]:
    whole = (AdapterVersion.adapter_id == adapter.id,)
    return whole if number is None else (*whole, AdapterVersion.number == number)
