"""All SQL of shares. What a tenant may learn of another's goes by the functions of
`migrations/versions/0116_sharing.py`; its own session sees no row of theirs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from gateway.catalog.cache import Owner
from gateway.catalog.names import ModelName
from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite, look_as_owner
from gateway.ids import uuid7
from gateway.models import Adapter, AdapterShare, AdapterVersion, Tenant, VersionState
from gateway.paging import Order, beyond
from gateway.principal import TenantId
from gateway.usage.zones import Window

BY_SHARE: Order[tuple[uuid.UUID]] = Order("adapter shares", uuid.UUID)
BY_OWNER: Order[tuple[str, str]] = Order("shared adapters", str, str)


@dataclass(frozen=True, slots=True)
class SharedAdapter:
    """Another tenant's adapter, as the one that may use it sees it."""

    owner: str  # that tenant's name
    name: str
    reachable: list[str] | None  # aliases and numbers; None = any
    shared_at: datetime
    live_at: datetime | None  # since when what a bare `owner/name` answers with is there; None = nothing does

    @property
    def model(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True, slots=True)
class SharedUse:
    """What one tenant used of one shared adapter on one day: billed requests and tokens."""

    day: int  # place in the window
    tenant: str
    adapter: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


async def enter(session: TenantRead, base_id: str, model: ModelName) -> Owner | None:
    """Who owns `model`, if it is shared with the session's tenant; then the session sees that owner's rows
    and its own no more. One statement when it is not, whyever."""
    found = (
        await session.execute(
            text("SELECT owner_id, owner_epoch FROM motet_shared_adapter(:base, :owner, :name, :at)"),
            {"base": base_id, "owner": model.owner, "name": model.name, "at": model.at},
        )
    ).one_or_none()
    if found is None:
        return None
    owner = Owner(TenantId(found.owner_id), found.owner_epoch)
    await look_as_owner(session, owner.tenant)
    return owner


async def list_shared(
    session: TenantRead, base_id: str, after: tuple[str, str] | None, limit: int
) -> list[SharedAdapter]:
    """What is shared with the session's tenant, by owner and name."""
    owner, name = after or ("", "")
    found = await session.execute(
        text("SELECT * FROM motet_shared_adapters(:base, :owner, :name, :most)"),
        {"base": base_id, "owner": owner, "name": name, "most": limit},
    )
    return [
        SharedAdapter(row.owner_name, row.name, row.reachable, row.shared_at, row.live_at) for row in found
    ]


async def used_by_others(
    session: TenantRead, window: Window, adapter: str | None, limit: int
) -> list[SharedUse]:
    """What other tenants used of the session's tenant's adapters (or of one), by day, tenant and adapter."""
    found = await session.execute(
        text("SELECT * FROM motet_shared_usage(CAST(:edges AS timestamptz[]), :adapter, :most)"),
        {"edges": window.edges, "adapter": adapter, "most": limit},
    )
    return [
        SharedUse(
            row.day - 1,
            row.tenant_name,
            row.adapter_name,
            int(row.requests),
            int(row.prompt),
            int(row.completion),
            int(row.cached),
        )
        for row in found
    ]


async def used_complete_until(session: TenantRead) -> datetime | None:
    """Whatever of anybody's ended before it is in these sums."""
    until: datetime | None = await session.scalar(text("SELECT motet_shared_usage_complete_until()"))
    return until


async def find_owned(session: TenantRead, tenant: TenantId, base_id: str, name: str) -> Adapter | None:
    """An adapter of the tenant's with a version that is not retired."""
    return await session.scalar(_owned(tenant, base_id, name))


async def lock_owned(session: SystemWrite, tenant: TenantId, base_id: str, name: str) -> Adapter | None:
    """The same, until the transaction ends: whoever retires its versions waits."""
    return await session.scalar(_owned(tenant, base_id, name).with_for_update())


def _owned(tenant: TenantId, base_id: str, name: str) -> Select[Adapter]:
    kept = select(AdapterVersion.id).where(
        AdapterVersion.adapter_id == Adapter.id, AdapterVersion.state != VersionState.RETIRED
    )
    return select(Adapter).where(
        Adapter.tenant_id == tenant, Adapter.base_id == base_id, Adapter.name == name, kept.exists()
    )


async def list_shares(
    session: TenantRead, adapter: Adapter, after: tuple[uuid.UUID] | None, limit: int
) -> Sequence[AdapterShare]:
    """Of an adapter, oldest first."""
    query = (
        select(AdapterShare)
        .where(AdapterShare.tenant_id == adapter.tenant_id, AdapterShare.adapter_id == adapter.id)
        .order_by(AdapterShare.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(beyond([AdapterShare.id], after, descending=False))
    return (await session.scalars(query)).all()


async def find_share(
    session: TenantRead | SystemRead, adapter: Adapter, recipient: TenantId | None
) -> AdapterShare | None:
    return await session.scalar(
        select(AdapterShare).where(
            AdapterShare.tenant_id == adapter.tenant_id,
            AdapterShare.adapter_id == adapter.id,
            AdapterShare.recipient_id.is_not_distinct_from(recipient),
        )
    )


async def count_shares(session: SystemRead, adapter: Adapter) -> int:
    query = select(func.count()).select_from(AdapterShare).where(AdapterShare.adapter_id == adapter.id)
    return int(await session.scalar(query) or 0)


async def put_share(
    session: SystemWrite, adapter: Adapter, recipient: TenantId | None, reachable: list[str] | None
) -> AdapterShare:
    """Adds it, or changes what it reaches."""
    values = {
        "id": uuid7(),
        "tenant_id": adapter.tenant_id,
        "adapter_id": adapter.id,
        "adapter_name": adapter.name,
        "recipient_id": recipient,
        "reachable": reachable,
    }
    statement = (
        insert(AdapterShare)
        .values(values)
        .on_conflict_do_update(
            constraint="adapter_shares_once", set_={"reachable": reachable, "updated_at": func.now()}
        )
        .returning(AdapterShare)
        .execution_options(populate_existing=True)
    )
    return (await session.scalars(statement)).one()


async def end_share(session: SystemWrite, share: AdapterShare) -> None:
    await session.execute(
        delete(AdapterShare).where(AdapterShare.id == share.id).execution_options(synchronize_session=False)
    )


async def end_all(session: TenantWrite, adapter: Adapter) -> list[TenantId | None]:
    """Ends an adapter's shares if it has no version left that is not retired; gives with whom it was
    shared."""
    if await session.scalar(_owned(TenantId(adapter.tenant_id), adapter.base_id, adapter.name)) is not None:
        return []
    ended = await session.scalars(
        delete(AdapterShare)
        .where(AdapterShare.tenant_id == adapter.tenant_id, AdapterShare.adapter_id == adapter.id)
        .returning(AdapterShare.recipient_id)
        .execution_options(synchronize_session=False)
    )
    return [None if each is None else TenantId(each) for each in ended]


async def end_received(session: SystemWrite, recipient: TenantId, limit: int) -> int:
    """At most `limit` of those that a tenant was given; how many there were."""
    some = select(AdapterShare.id).where(AdapterShare.recipient_id == recipient).limit(limit)
    gone = await session.scalars(
        delete(AdapterShare)
        .where(AdapterShare.id.in_(some))
        .returning(AdapterShare.id)
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


async def received(session: SystemRead, recipient: TenantId) -> list[str]:
    found = await session.scalars(select(AdapterShare.id).where(AdapterShare.recipient_id == recipient))
    return [str(each) for each in found]


async def names_of(session: SystemRead, tenants: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    found = await session.execute(select(Tenant.id, Tenant.name).where(Tenant.id.in_(tenants)))
    return {row.id: row.name for row in found}


async def lock_pair(
    session: SystemWrite, owner: TenantId, recipient: TenantId | None
) -> dict[uuid.UUID, Tenant]:
    """Both, until the transaction ends, so that neither leaves meanwhile; in one order for all."""
    wanted = sorted({each for each in (owner, recipient) if each is not None})
    query = select(Tenant).where(Tenant.id.in_(wanted)).order_by(Tenant.id).with_for_update(key_share=True)
    return {row.id: row for row in await session.scalars(query)}
