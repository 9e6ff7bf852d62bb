"""What may become of a retired version: restored within its retention, or purged for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from adapters.store import ObjectStore, StoreError, artefact_path
from gateway.aliases.moves import require_unshared
from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository as catalog
from gateway.catalog import stored
from gateway.catalog.lifecycle import adapter_not_found
from gateway.catalog.names import MAX_VERSION, is_name
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import AdapterRow, Line
from gateway.catalog.store_faults import store_unavailable
from gateway.catalog.told import state_changed
from gateway.db import Database, TenantWrite
from gateway.errors import BadRequest, Conflict, Unavailable
from gateway.models import Adapter, AdapterVersion, ArtefactPurge, ArtefactPurgeReplica
from gateway.principal import Principal, TenantId
from gateway.retirement import repository
from gateway.retirement.purge import Purges
from gateway.sharing.ending import end_with_adapter, tell_recipients
from gateway.tenants.epochs import Epochs, bump

log = structlog.get_logger(__name__)

MAX_RESTORED: Final = 500
"""Versions restored by one call, the newest; the next call goes on."""

AT_ONCE: Final = 16
PATIENCE_S: Final = 8.0
"""How long whoever asks for a purge waits for its end; control goes on with it."""

PURGED_AT_ONCE: Final = 2
PURGED_HERE: Final = 16
"""Artefacts of one call that its worker begins with itself."""

MAX_SHOWN: Final = 10_000
"""Versions of one adapter whose purge is told, those under way first."""


@dataclass(frozen=True, slots=True)
class Restored:
    adapter: AdapterRow
    versions: Sequence[AdapterVersion]
    gone: list[int]
    aliases: dict[str, int]
    aliases_left: dict[str, int]


@dataclass(frozen=True, slots=True)
class VersionPurge:
    """How far the end of one version's bytes is."""

    version: AdapterVersion
    kept_for: list[str]
    purge: ArtefactPurge | None
    replicas: Sequence[ArtefactPurgeReplica]

    @property
    def state(self) -> str:
        if self.kept_for:
            return "kept"
        return "purged" if self.version.purged_at is not None else "purging"


class Retirement:
    """One a worker."""

    def __init__(
        self, db: Database, epochs: Epochs, store: ObjectStore, purges: Purges, base_id: str
    ) -> None:
        self._db = db
        self._epochs = epochs
        self._store = store
        self._purges = purges
        self._base_id = base_id

    async def restore(
        self, principal: Principal, actor: Actor, name: str, number: int | None, *, aliases: bool
    ) -> Restored:
        """Version `number`, or all that are retired. Raises `NotFound`, and `Conflict` when none of them is
        retired (`adapter_not_retired`) or can be restored (`adapter_purged`)."""
        tenant = principal.tenant
        adapter, found = await self._retired(principal, name, number)
        there = await self._with_objects(tenant, found)
        async with self._db.tenant_session(tenant) as session:
            await catalog.lock_adapter(session, self._line(tenant), name)
            for artefact in sorted({version.artefact for version in there}):
                await stored.lock_artefact(session, artefact)
            numbers = [version.number for version in there]
            restored = await repository.restore(session, adapter, numbers)
            if not restored:
                raise Conflict("Its bytes are gone: upload it again.", code="adapter_purged")
            back, left = await _point_again(session, adapter, restored, wanted=aliases)
            for version in restored:
                await state_changed(session, tenant, name, version.number, version.state)
                version.retired_aliases = None
            numbers = sorted(version.number for version in restored)
            details = {"versions": numbers, "aliases": back, "aliases_left": left}
            record(session, actor, Change("adapter.restore", _target(name, number), tenant, details))
            epoch = await bump(session, tenant)
            row = await catalog.find_adapter(session, self._line(tenant), name)
        assert row is not None
        await self._epochs.publish(tenant, epoch)
        gone = sorted({version.number for version in found} - set(numbers))
        return Restored(row, restored, gone, back, left)

    async def purge(
        self, principal: Principal, actor: Actor, name: str, number: int | None, confirm: str
    ) -> list[VersionPurge]:
        """For good, whether it was retired before or not; may be asked again. Raises `NotFound`, and
        `BadRequest` when its name was not typed."""
        await self._adapter(principal, name, number)
        if confirm != _target(name, number):
            message = f"'confirm' must be '{_target(name, number)}'."
            raise BadRequest(message, param="confirm", code="confirmation_mismatch")
        tenant = principal.tenant
        async with self._db.tenant_session(tenant) as session:
            adapter = await catalog.lock_adapter(session, self._line(tenant), name)
            if adapter is None:
                raise adapter_not_found(name, number)
            if number is not None:
                await require_unshared(session, adapter, number)
            await catalog.retire_versions(session, adapter, number)
            ended = await end_with_adapter(session, actor, adapter)
            artefacts = await repository.let_go(session, adapter, number)
            kept = await repository.keepers(session, tenant, artefacts)
            for artefact in artefacts:
                if artefact in kept:
                    await repository.mark_purged(session, (tenant, artefact))
                else:
                    await repository.begin(session, (tenant, artefact), actor.name)
            if artefacts:
                details = {"artefacts": len(artefacts), "kept": len(kept)}
                record(session, actor, Change("adapter.purge", _target(name, number), tenant, details))
                await state_changed(session, tenant, name, number, "purged")
            epoch = await bump(session, tenant)
        await self._epochs.publish(tenant, epoch)
        await tell_recipients(self._db, actor, tenant, name, ended)
        await self._begin_with([(tenant, artefact) for artefact in artefacts if artefact not in kept])
        return await self._ending(tenant, adapter, number)

    async def purge_of(self, principal: Principal, name: str, number: int | None) -> list[VersionPurge]:
        """Of the versions that were purged, or are about to be. Raises `NotFound` when there is none."""
        adapter = await self._adapter(principal, name, number, Action.SEE)
        found = await self._ending(principal.tenant, adapter, number)
        if not found:
            raise adapter_not_found(name, number)
        return found

    async def _ending(self, tenant: TenantId, adapter: Adapter, number: int | None) -> list[VersionPurge]:
        async with self._db.tenant_reader(tenant) as session:
            ending = await repository.ending(session, adapter, number, MAX_SHOWN)
            artefacts = sorted({version.artefact for version in ending})
            kept = await repository.keepers(session, tenant, artefacts)
            purges = {each.artefact: each for each in await repository.purges_of(session, tenant, artefacts)}
            replicas = repository.by_artefact(await repository.replica_states(session, tenant, artefacts))
        return [
            VersionPurge(v, kept.get(v.artefact, []), purges.get(v.artefact), replicas.get(v.artefact, []))
            for v in ending
        ]

    async def _begin_with(self, artefacts: Sequence[repository.Purged]) -> None:
        """As far as it goes while somebody waits. A store or a replica that is away is no error: control goes
        on with it."""
        places = asyncio.Semaphore(PURGED_AT_ONCE)

        async def advance(purged: repository.Purged) -> None:
            async with places:
                try:
                    await self._purges.advance(purged)
                except (Unavailable, StoreError) as error:
                    log.warning("purge_waits", artefact=purged[1], reason=str(error))

        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(advance(each) for each in artefacts[:PURGED_HERE]))
        except TimeoutError:
            log.info("purge_goes_on_in_control", num_artefacts=len(artefacts))

    async def _adapter(
        self, principal: Principal, name: str, number: int | None, action: Action = Action.CHANGE
    ) -> Adapter:
        """Raises `NotFound` when there never was such a version, whatever became of it."""
        possible = is_name(name) and (number is None or 1 <= number <= MAX_VERSION)
        if not possible or not may(principal, action, name):
            raise adapter_not_found(name, number)
        async with self._db.tenant_reader(principal.tenant) as session:
            adapter = await repository.find_by_name(session, self._line(principal.tenant), name)
            if adapter is None or not await repository.has_version(session, adapter, number):
                raise adapter_not_found(name, number)
        return adapter

    async def _retired(
        self, principal: Principal, name: str, number: int | None
    ) -> tuple[Adapter, list[AdapterVersion]]:
        adapter = await self._adapter(principal, name, number)
        async with self._db.tenant_reader(principal.tenant) as session:
            found, any_at_all = await repository.retired(session, adapter, number, MAX_RESTORED)
        if not any_at_all:
            raise Conflict("It is not retired.", code="adapter_not_retired")
        if not found:
            raise Conflict("Its bytes are gone: upload it again.", code="adapter_purged")
        return adapter, found

    async def _with_objects(self, tenant: TenantId, found: Sequence[AdapterVersion]) -> list[AdapterVersion]:
        """Those whose object is in the store. Raises `Unavailable`."""
        places = asyncio.Semaphore(AT_ONCE)

        async def is_there(version: AdapterVersion) -> bool:
            async with places:
                path = artefact_path(str(tenant), version.artefact)
                return await asyncio.to_thread(self._store.exists, path)

        try:
            there = await asyncio.gather(*(is_there(version) for version in found))
        except StoreError as error:
            raise store_unavailable(error) from error
        return [version for version, is_so in zip(found, there, strict=True) if is_so]

    def _line(self, tenant: TenantId) -> Line:
        return Line(tenant, self._base_id)


async def _point_again(
    session: TenantWrite, adapter: Adapter, restored: Sequence[AdapterVersion], *, wanted: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """(aliases that point to a restored version again, those that did and don't); the newest version
    first."""
    taken = await repository.alias_names(session, adapter)
    back: dict[str, int] = {}
    left: dict[str, int] = {}
    for version in sorted(restored, key=lambda each: -each.number):
        for alias in version.retired_aliases or ():
            if wanted and alias not in taken:
                await catalog.move_alias(session, adapter, alias, version.number)
                taken.add(alias)
                back[alias] = version.number
            elif alias not in back:
                left.setdefault(alias, version.number)
    return back, left


def _target(name: str, number: int | None) -> str:
    return name if number is None else f"{name}@{number}"
