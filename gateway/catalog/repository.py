"""All SQL of adapters, versions and aliases. Every look-up starts from the tenant."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Row,
    ScalarSelect,
    Select,
    Text,
    and_,
    case,
    delete,
    func,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import array, insert
from sqlalchemy.orm import aliased

from gateway.aliases.spread import Spread
from gateway.catalog.names import LIVE, ModelName
from gateway.catalog.stored import is_restorable
from gateway.db import SystemWrite, TenantRead, TenantWrite
from gateway.errors import Conflict
from gateway.models import Adapter, AdapterProof, AdapterVersion, Alias, BaseModel, VersionState
from gateway.paging import Order, starts_with
from gateway.principal import TenantId

BY_NAME: Order[tuple[str]] = Order("adapters", str)
BY_NUMBER: Order[tuple[int]] = Order("versions", int)


@dataclass(frozen=True, slots=True)
class Line:
    """Where a tenant's adapters over one base are looked up."""

    tenant: TenantId
    base_id: str


@dataclass(frozen=True, slots=True)
class NewVersion:
    """What a version row says of the stored artefact."""

    artefact: str
    content_digest: str
    manifest: dict[str, Any]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """An adapter with at least one version that is there; or, asked for so, that can be restored."""

    adapter: Adapter
    aliases: dict[str, int]  # of a weighted one, the version that has most
    latest: AdapterVersion  # of those that were asked for: not retired, or to restore
    is_there: bool  # has versions that are not retired
    has_retired: bool  # has versions that can be restored
    parts: dict[str, frozenset[int]]  # of each alias: versions that have a part of it
    artefacts: dict[str, str]  # of each alias: that of its version in `aliases`

    @property
    def answering(self) -> str:
        """The artefact that the bare name is answered with; without `live`, the newest version's."""
        return self.artefacts.get(LIVE, self.latest.artefact)


async def register_base(session: SystemWrite, base_id: str, name: str, spec: dict[str, Any]) -> None:
    """Makes the base's row on its first start. Raises `Conflict` when another base has its name."""
    row = {"base_id": base_id, "name": name, "spec": spec}
    await session.execute(insert(BaseModel).values(row).on_conflict_do_nothing())
    if await session.get(BaseModel, base_id) is None:
        raise Conflict(f"Another base model is registered as '{name}'; serve this one under a new name.")


async def base_created_at(session: TenantRead, base_id: str) -> datetime:
    """When the base was first served."""
    return (await session.scalars(select(BaseModel.created_at).where(BaseModel.base_id == base_id))).one()


def proved_on() -> ScalarSelect[list[str] | None]:
    """Digests of the weights that a version was proved on; None: it is older than proofs."""
    held = func.array_agg(AdapterProof.base_digest).filter(AdapterProof.passed)
    passed = func.coalesce(held, array([], type_=Text))
    proved = select(case((func.count() > 0, passed))).where(AdapterProof.version_id == AdapterVersion.id)
    return proved.scalar_subquery()


async def find_served(
    session: TenantRead, line: Line, model: ModelName
) -> Row[int, str, datetime, Adapter, datetime | None, list[str] | None] | None:
    """(number, artefact, created_at, its adapter, lost_at, digests as `proved_on`) of the ready version that
    `model` names."""
    query = (
        select(
            AdapterVersion.number,
            AdapterVersion.artefact,
            AdapterVersion.created_at,
            Adapter,
            AdapterVersion.lost_at,
            proved_on().label("digests"),
        )
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(*_of(line), Adapter.name == model.name, AdapterVersion.state == VersionState.READY)
    )
    if model.version is not None:
        query = query.where(AdapterVersion.number == model.version)
    else:
        query = query.join(
            Alias, (Alias.adapter_id == Adapter.id) & (Alias.version == AdapterVersion.number)
        ).where(Alias.name == model.alias)
    return (await session.execute(query)).one_or_none()


async def list_served(
    session: TenantRead, line: Line, limit: int, *, after: str = "", allowed: frozenset[str] | None = None
) -> Sequence[Row[str, int, datetime]]:
    """(name, live version, created at) of the adapters that a bare name reaches, by name, after `after`, out
    of `allowed` (None = all)."""
    query = (
        select(Adapter.name, AdapterVersion.number, AdapterVersion.created_at)
        .join(Alias, (Alias.adapter_id == Adapter.id) & (Alias.name == LIVE))
        .join(
            AdapterVersion,
            (AdapterVersion.adapter_id == Adapter.id) & (AdapterVersion.number == Alias.version),
        )
        .where(*_of(line), AdapterVersion.state == VersionState.READY, Adapter.name > after)
        .order_by(Adapter.name)
        .limit(limit)
    )
    if allowed is not None:
        query = query.where(Adapter.name.in_(sorted(allowed)))
    return (await session.execute(query)).all()


async def list_adapters(
    session: TenantRead,
    line: Line,
    *,
    after: str,
    limit: int,
    allowed: frozenset[str] | None = None,
    name_prefix: str | None = None,
    retired: bool = False,
) -> list[AdapterRow]:
    """Adapters whose name sorts after `after`, by name, out of `allowed` (None = all). `retired`: those with
    versions that can be restored, instead of those with versions that are there."""
    query = _adapters(line, retired=retired).where(Adapter.name > after)
    if name_prefix is not None:
        query = query.where(starts_with(Adapter.name, name_prefix))
    if allowed is not None:
        query = query.where(Adapter.name.in_(sorted(allowed)))
    return await _with_aliases(session, (await session.execute(query.limit(limit))).all())


async def find_adapter(
    session: TenantRead, line: Line, name: str, *, retired: bool = False
) -> AdapterRow | None:
    rows = (await session.execute(_adapters(line, retired=retired).where(Adapter.name == name))).all()
    found = await _with_aliases(session, rows)
    return found[0] if found else None


async def list_versions(
    session: TenantRead, adapter: Adapter, before: int | None, limit: int, state: str | None = None
) -> Sequence[AdapterVersion]:
    """Versions that are not retired, newest first, below number `before`; with `state` retired, those that
    can be restored."""
    listed = (
        is_restorable() if state == VersionState.RETIRED else AdapterVersion.state != VersionState.RETIRED
    )
    query = select(AdapterVersion).where(AdapterVersion.adapter_id == adapter.id, listed)
    if before is not None:
        query = query.where(AdapterVersion.number < before)
    if state is not None:
        query = query.where(AdapterVersion.state == state)
    return (await session.scalars(query.order_by(AdapterVersion.number.desc()).limit(limit))).all()


async def find_version(
    session: TenantRead, adapter: Adapter, number: int, *, retired: bool = False
) -> AdapterVersion | None:
    """`retired`: one that can be restored, instead of one that is there."""
    return await session.scalar(
        select(AdapterVersion).where(
            AdapterVersion.adapter_id == adapter.id,
            AdapterVersion.number == number,
            is_restorable() if retired else AdapterVersion.state != VersionState.RETIRED,
        )
    )


async def find_same(session: TenantRead, adapter: Adapter, content_digest: str) -> AdapterVersion | None:
    """The newest version of this adapter with the same content."""
    return await session.scalar(
        select(AdapterVersion)
        .where(
            AdapterVersion.adapter_id == adapter.id,
            AdapterVersion.content_digest == content_digest,
            AdapterVersion.state != VersionState.RETIRED,
        )
        .order_by(AdapterVersion.number.desc())
        .limit(1)
    )


async def lock_adapter(session: TenantWrite, line: Line, name: str) -> Adapter | None:
    """The adapter's row, locked until the transaction ends: whoever changes its versions holds it."""
    return await session.scalar(select(Adapter).where(*_of(line), Adapter.name == name).with_for_update())


async def lock_or_add_adapter(session: TenantWrite, line: Line, name: str) -> Adapter:
    """Like `lock_adapter`; adds the row when the name is new."""
    row = {"id": uuid.uuid4(), "tenant_id": line.tenant, "base_id": line.base_id, "name": name}
    await session.execute(insert(Adapter).values(row).on_conflict_do_nothing(constraint="adapters_name"))
    adapter = await lock_adapter(session, line, name)
    assert adapter is not None
    return adapter


async def add_version(
    session: TenantWrite,
    adapter: Adapter,
    new: NewVersion,
    state: VersionState = VersionState.READY,
    moves_alias: str | None = None,
) -> AdapterVersion:
    """The adapter's next version; the caller holds the adapter's lock. `moves_alias` will point to it once it
    is ready."""
    adapter.last_number += 1
    version = AdapterVersion(
        id=uuid.uuid4(),
        tenant_id=adapter.tenant_id,
        adapter_id=adapter.id,
        number=adapter.last_number,
        artefact=new.artefact,
        content_digest=new.content_digest,
        state=state,
        manifest=new.manifest,
        num_bytes=new.num_bytes,
        moves_alias=moves_alias,
        ready_at=func.now() if state is VersionState.READY else None,
    )
    session.add(version)
    await session.flush()
    await session.refresh(version)
    return version


async def move_alias(session: TenantWrite, adapter: Adapter, alias: str, number: int) -> None:
    row = {"adapter_id": adapter.id, "tenant_id": adapter.tenant_id, "name": alias, "version": number}
    await session.execute(
        insert(Alias)
        .values(row)
        .on_conflict_do_update(
            index_elements=["adapter_id", "name"], set_={"version": number, "updated_at": func.now()}
        )
    )


async def retire_versions(
    session: TenantWrite, adapter: Adapter, number: int | None, keep: timedelta = timedelta()
) -> list[str]:
    """Retires version `number` (None = all) with the aliases that point to it; returns its artefacts. Their
    bytes are kept for so long."""
    of_versions = [AdapterVersion.adapter_id == adapter.id, AdapterVersion.state != VersionState.RETIRED]
    of_aliases = [Alias.adapter_id == adapter.id]
    if number is not None:
        of_versions.append(AdapterVersion.number == number)
        of_aliases.append(Alias.version == number)
    pointing = select(func.array_agg(Alias.name)).where(
        Alias.adapter_id == adapter.id, Alias.version == AdapterVersion.number
    )
    retired = await session.scalars(
        update(AdapterVersion)
        .where(*of_versions)
        .values(
            state_before=AdapterVersion.state,
            state=VersionState.RETIRED,
            retired_at=func.now(),
            purges_at=func.now() + keep,
            retired_aliases=pointing.scalar_subquery(),
        )
        .returning(AdapterVersion.artefact)
        .execution_options(synchronize_session=False)
    )
    artefacts = sorted(set(retired))
    await session.execute(delete(Alias).where(*of_aliases))
    return artefacts


def _of(line: Line) -> tuple[Any, ...]:
    return (Adapter.tenant_id == line.tenant, Adapter.base_id == line.base_id)


def _adapters(line: Line, *, retired: bool = False) -> Select[Adapter, AdapterVersion, bool]:
    """By name, each with its newest version, and whether it has others that are retired, or not: looked up
    for those of the page only, along both tables' indexes."""
    is_there = AdapterVersion.state != VersionState.RETIRED
    newest = (
        select(AdapterVersion)
        .where(AdapterVersion.adapter_id == Adapter.id, is_restorable() if retired else is_there)
        .order_by(AdapterVersion.number.desc())
        .limit(1)
        .lateral("newest")
    )
    latest = aliased(AdapterVersion, newest)
    of_others = select(AdapterVersion.id).where(AdapterVersion.adapter_id == Adapter.id)
    others = of_others.where(is_there if retired else is_restorable()).correlate(Adapter).exists()
    query = select(Adapter, latest, others).join(latest, true())
    return query.where(*_of(line)).order_by(Adapter.name)


async def _with_aliases(
    session: TenantRead, rows: Sequence[Row[Adapter, AdapterVersion, bool]]
) -> list[AdapterRow]:
    made = {}
    for adapter, latest, others in rows:
        retired = latest.state == VersionState.RETIRED
        made[adapter.id] = AdapterRow(adapter, {}, latest, others or not retired, others or retired, {}, {})
    version_of = and_(AdapterVersion.adapter_id == Alias.adapter_id, AdapterVersion.number == Alias.version)
    found = await session.execute(
        select(Alias.adapter_id, Alias.name, Alias.version, Alias.spread, AdapterVersion.artefact)
        .outerjoin(AdapterVersion, version_of)
        .where(Alias.adapter_id.in_(made))
    )
    for adapter_id, name, version, spread, artefact in found:
        made[adapter_id].aliases[name] = version
        if artefact is not None:
            made[adapter_id].artefacts[name] = artefact
        parts = [version] if spread is None else Spread.of_row(spread).weights
        made[adapter_id].parts[name] = frozenset(parts)
    return list(made.values())
