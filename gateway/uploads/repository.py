"""All SQL of uploads and of the room they take. A tenant's session sees its own rows; control's sees all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import delete, func, select, text, true, update

from gateway.catalog.stored import stored_of
from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.models import StorageHold, Upload
from gateway.paging import ById, Order, beyond
from gateway.principal import TenantId

UPLOADS: Order[ById] = Order("uploads", UUID)
BATCH_ROWS: Final = 1_000
_STORAGE_LOCKS: Final = 5_704  # the space of these advisory locks, apart from that of artefacts


@dataclass(frozen=True, slots=True)
class Taken:
    """What of a tenant's storage is in use or promised, by a moment of one statement."""

    versions: int
    num_bytes: int
    open_uploads: int


async def lock_storage(session: TenantWrite, tenant: TenantId) -> None:
    """Until the transaction ends nobody else is promised room of this tenant's storage."""
    key = int.from_bytes(tenant.bytes[-4:], signed=True)
    await session.execute(
        text("SELECT pg_advisory_xact_lock(:space, :key)"), {"space": _STORAGE_LOCKS, "key": key}
    )


async def taken_by(session: TenantRead, tenant: TenantId, without: UUID | None = None) -> Taken:
    """Stored versions, uploads that are no version yet, and holds but the one named `without`. One statement,
    so that what turns from one into the other is counted once."""
    stored = stored_of(tenant)
    coming = select(func.count(), func.coalesce(func.sum(Upload.num_bytes), 0)).where(
        Upload.tenant_id == tenant, Upload.version.is_(None)
    )
    making = func.count().filter(StorageHold.makes_version)
    held = select(making, func.coalesce(func.sum(StorageHold.num_bytes), 0)).where(
        StorageHold.tenant_id == tenant
    )
    if without is not None:
        held = held.where(StorageHold.id != without)
    one, two, three = stored.subquery(), coming.subquery(), held.subquery()
    both = one.join(two, true()).join(three, true())  # a row each
    row = (await session.execute(select(one, two, three).select_from(both))).one()
    versions, version_bytes, uploads, upload_bytes, holds, hold_bytes = map(int, row)
    return Taken(versions + holds, version_bytes + upload_bytes + hold_bytes, uploads)


async def add_hold(
    session: TenantWrite, tenant: TenantId, hold: UUID, place: str, expires_at: datetime
) -> None:
    session.add(StorageHold(id=hold, tenant_id=tenant, place=place, num_bytes=0, expires_at=expires_at))
    await session.flush()


async def resize_hold(session: TenantWrite, hold: UUID, num_bytes: int, *, makes_version: bool) -> None:
    await session.execute(
        update(StorageHold)
        .where(StorageHold.id == hold)
        .values(num_bytes=num_bytes, makes_version=makes_version)
    )


async def delete_hold(session: TenantWrite, hold: UUID) -> None:
    await session.execute(delete(StorageHold).where(StorageHold.id == hold))


async def add_upload(session: TenantWrite, upload: Upload) -> None:
    session.add(upload)
    await session.flush()
    await session.refresh(upload)


async def find_upload(
    session: TenantRead, tenant: TenantId, upload: UUID, *, lock: bool = False
) -> Upload | None:
    """One that has not expired."""
    query = select(Upload).where(
        Upload.tenant_id == tenant, Upload.id == upload, Upload.expires_at > func.now()
    )
    return await session.scalar(query.with_for_update() if lock else query)


async def list_uploads(
    session: TenantRead, tenant: TenantId, start: ById | None, limit: int
) -> Sequence[Upload]:
    """Those that are no version yet, newest first."""
    query = select(Upload).where(
        Upload.tenant_id == tenant, Upload.version.is_(None), Upload.expires_at > func.now()
    )
    if start is not None:
        query = query.where(beyond([Upload.id], start, descending=True))
    return (await session.scalars(query.order_by(Upload.id.desc()).limit(limit))).all()


async def advance(
    session: TenantWrite, upload: UUID, writer: UUID, received: int, idle: timedelta, age: timedelta
) -> Upload | None:
    """Says that so many bytes are durable; None when another request writes it now, or it is gone."""
    return await session.scalar(
        update(Upload)
        .where(Upload.id == upload, Upload.writer == writer, Upload.version.is_(None))
        .values(
            received=received,
            touched_at=func.now(),
            expires_at=func.least(func.now() + idle, Upload.created_at + age),
        )
        .returning(Upload)
    )


async def is_writer(session: TenantRead, upload: UUID, writer: UUID) -> bool:
    query = select(Upload.id).where(Upload.id == upload, Upload.writer == writer)
    return await session.scalar(query) is not None


async def mark_taken(
    session: TenantWrite, uploads: Sequence[UUID], adapter: str, version: int, keep: timedelta
) -> None:
    """Their bytes are a version's from now on; the rows stay a while, for a client that asks again."""
    await session.execute(
        update(Upload)
        .where(Upload.id.in_(uploads), Upload.version.is_(None))
        .values(adapter=adapter, version=version, expires_at=func.now() + keep)
    )


async def delete_uploads(session: TenantWrite, tenant: TenantId, uploads: Sequence[UUID]) -> list[UUID]:
    """Those that are no version yet; gives which were there."""
    gone = await session.scalars(
        delete(Upload)
        .where(Upload.tenant_id == tenant, Upload.id.in_(uploads), Upload.version.is_(None))
        .returning(Upload.id)
    )
    return list(gone)


async def known(session: SystemRead, uploads: Sequence[UUID]) -> set[UUID]:
    """Those whose files are still wanted."""
    query = select(Upload.id).where(Upload.id.in_(uploads), Upload.version.is_(None))
    return set(await session.scalars(query))


async def delete_holds_at(session: SystemWrite, places: Sequence[str]) -> None:
    await session.execute(delete(StorageHold).where(StorageHold.place.in_(places)))


async def delete_expired(session: SystemWrite) -> int:
    """At most `BATCH_ROWS` uploads and as many holds; gives how many."""
    gone = 0
    for table in (Upload, StorageHold):
        some = select(table.id).where(table.expires_at <= func.now()).limit(BATCH_ROWS)
        found = await session.scalars(delete(table).where(table.id.in_(some)).returning(table.id))
        gone += len(found.all())
    return gone
