"""An upload's way from the wire to a version that answers: spool → prove → digest → pack → store → rows.

Until the last step nothing can be seen of it, and a refusal anywhere leaves nothing behind. The last step is
one transaction: the version's row and the alias `live` appear together, or not at all.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from adapters import digest, packed, proof
from adapters.base import BaseSpec
from adapters.manifest import Manifest
from adapters.proof import ProofUnavailable
from adapters.refused import AdapterRefused
from adapters.store import NotFound, StoreError, artefact_path
from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.names import LIVE
from gateway.catalog.parts import Parts, UploadLimits, receive_parts
from gateway.catalog.repository import AdapterRow, Line, NewVersion
from gateway.catalog.spool import Spool
from gateway.catalog.store_faults import store_unavailable
from gateway.catalog.told import state_changed
from gateway.db import Database
from gateway.errors import Conflict, Unavailable, Unprocessable
from gateway.models import AdapterVersion
from gateway.principal import TenantId
from gateway.tenant_slots import RETRY_AFTER_S, TenantSlots
from gateway.tenants.epochs import Epochs, bump

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload that was let in: who owns the adapter, its name, and the body as it arrives."""

    tenant: TenantId
    actor: Actor
    name: str
    boundary: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Stored:
    """The version an upload ended as. `created` is False when the same content was there already."""

    adapter: AdapterRow
    version: AdapterVersion
    created: bool


@dataclass(frozen=True, slots=True)
class Bench:
    """Where uploads are worked on, and how much of it at a time in one worker."""

    spool: Spool
    limits: UploadLimits
    per_worker: int = 4
    per_tenant: int = 2
    proof_timeout_s: float = 300.0
    tenant_bytes: int = 100 * 1024**3  # stored, of all versions of one tenant
    tenant_versions: int = 10_000


@dataclass(frozen=True, slots=True)
class Proved:
    """A proved and packed adapter, still on the spool."""

    new: NewVersion
    packed: Path


class Intake:
    """Takes uploads. One a worker; all its limits are stated in `UploadLimits` and `Bench`."""

    def __init__(
        self, database: Database, epochs: Epochs, shelf: Shelf, base: BaseSpec, bench: Bench
    ) -> None:
        self._database = database
        self._epochs = epochs
        self._shelf = shelf
        self._base = base
        self._base_id = base.base_id
        self.limits = bench.limits
        self._bench = bench
        self._slots = TenantSlots("uploads", bench.per_worker, bench.per_tenant)
        self._threads = ThreadPoolExecutor(bench.per_worker, thread_name_prefix="upload")

    async def start(self) -> None:
        """Clears the spool of what killed workers left there."""
        left = await asyncio.to_thread(self._bench.spool.sweep)
        if left:
            log.info("spool_swept", directories=left)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def take(self, upload: Upload) -> Stored:
        """Raises the refusals of `receive_parts`, `Unprocessable` for what is no adapter of this base, and
        `RateLimited` or `Unavailable` when too much is going on."""
        with self._slots.hold(upload.tenant):
            try:
                return await self._take(upload)
            except OSError as error:
                log.exception("upload_disk_failed")
                raise Unavailable("The gateway cannot keep the upload now. Try again shortly.") from error

    async def _take(self, upload: Upload) -> Stored:
        async with self._directory() as directory:
            parts = await receive_parts(upload.chunks, upload.boundary, directory, self.limits)
            proved = await self._prove(upload.tenant, parts, directory)
            return await self._publish(upload, proved)

    @asynccontextmanager
    async def _directory(self) -> AsyncIterator[Path]:
        held = self._bench.spool.directory()
        directory = await asyncio.to_thread(held.__enter__)
        try:
            yield directory
        finally:
            # Quick (two or three files), and on this thread so that no cancellation can skip it.
            held.__exit__(None, None, None)

    async def _prove(self, tenant: TenantId, parts: Parts, directory: Path) -> Proved:
        # Threads of its own: a proof may wait for minutes, and the shared ones count prompts.
        job = functools.partial(self._prove_and_pack, tenant, parts, directory / "packed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, job)
        except AdapterRefused as refused:
            raise Unprocessable(refused.message, param=refused.part, code=str(refused.code)) from None
        except ProofUnavailable as error:
            log.warning("proof_unavailable", reason=str(error))
            raise Unavailable(str(error), retry_after_s=RETRY_AFTER_S) from error

    def _prove_and_pack(self, tenant: TenantId, parts: Parts, target: Path) -> Proved:
        manifest = proof.prove(
            parts.config.read_bytes(),
            parts.weights,
            self._base,
            timeout_s=self._bench.proof_timeout_s,
            max_weights_bytes=self.limits.max_bytes,
        )
        content = digest.content_digest(manifest, parts.weights, self._base_id)
        artefact = digest.artefact_id(str(tenant), content)
        info = packed.pack(manifest, parts.weights, target, artefact=artefact, base_id=self._base_id)
        return Proved(NewVersion(artefact, content, describe(manifest), info.num_bytes), info.path)

    async def _publish(self, upload: Upload, proved: Proved) -> Stored:
        line = Line(upload.tenant, self._base_id)
        same = await self._find_same(line, upload.name, proved.new.content_digest)
        if same is not None:
            return await self._bring_back(line, same, proved) if same.version.lost_at else same
        await self._check_room(line.tenant, proved.new.num_bytes)
        # A put that failed left nothing, or what control finds in the store and removes: to ask a store that
        # is away to delete would only double the wait.
        await self._put(line.tenant, proved)
        try:
            stored, epoch = await self._add_rows(line, upload, proved)
        except BaseException:
            await asyncio.shield(self._shelf.clear(line.tenant, [proved.new.artefact]))
            raise
        await self._epochs.publish(line.tenant, epoch)
        self._shelf.hints.prefetch(line.tenant, proved.new.artefact)
        return stored

    async def _bring_back(self, line: Line, same: Stored, proved: Proved) -> Stored:
        """The store has lost this content: it is put again, whatever lies there, and resolves again."""
        await self._put(line.tenant, proved, anew=True)
        async with self._database.tenant_session(line.tenant) as session:
            await repository.lock_artefact(session, proved.new.artefact)
            await repository.found_again(session, line.tenant, proved.new.artefact)
            epoch = await bump(session, line.tenant)
        await self._epochs.publish(line.tenant, epoch)
        return Stored(same.adapter, same.version, created=False)

    async def _check_room(self, tenant: TenantId, num_bytes: int) -> None:
        """Raises `Conflict` for a tenant that keeps enough already: one must not fill the store of all.
        Uploads that end at the same time may each find the same room."""
        async with self._database.tenant_reader(tenant) as session:
            versions, stored = await repository.stored_by(session, tenant)
        most, most_bytes = self._bench.tenant_versions, self._bench.tenant_bytes
        if versions >= most:
            message = f"A tenant has at most {most:,} versions of adapters. Purge some first."
            raise Conflict(message, code="too_many_versions")
        if stored + num_bytes > most_bytes:
            message = f"A tenant's adapters have at most {most_bytes / 2**30:g} GiB. Purge some first."
            raise Conflict(message, code="adapter_storage_full")

    async def _find_same(self, line: Line, name: str, content_digest: str) -> Stored | None:
        async with self._database.tenant_reader(line.tenant) as session:
            found = await repository.find_adapter(session, line, name)
            if found is None:
                return None
            version = await repository.find_same(session, found.adapter, content_digest)
        return None if version is None else Stored(found, version, created=False)

    async def _add_rows(self, line: Line, upload: Upload, proved: Proved) -> tuple[Stored, int]:
        """What the upload ended as, and the tenant's epoch after it."""
        async with self._database.tenant_session(line.tenant) as session:
            await repository.lock_artefact(session, proved.new.artefact)
            adapter = await repository.lock_or_add_adapter(session, line, upload.name)
            version = await repository.find_same(session, adapter, proved.new.content_digest)
            created = version is None
            if version is None:
                await self._put(line.tenant, proved)  # again: a delete may have taken it since
                await repository.found_again(session, line.tenant, proved.new.artefact)
                version = await repository.add_version(session, adapter, proved.new)
                await repository.move_alias(session, adapter, LIVE, version.number)
                record(session, upload.actor, _change(line.tenant, upload.name, version))
                await state_changed(session, line.tenant, upload.name, version.number, "ready")
            row = await repository.find_adapter(session, line, upload.name)
            assert row is not None
            epoch = await bump(session, line.tenant)
        return Stored(row, version, created), epoch

    async def _put(self, tenant: TenantId, proved: Proved, *, anew: bool = False) -> None:
        path = artefact_path(str(tenant), proved.new.artefact)
        try:
            if anew or not await asyncio.to_thread(self._is_whole, path, proved.new.num_bytes):
                await asyncio.to_thread(self._shelf.store.put_file, proved.packed, path)
        except StoreError as error:
            log.warning("store_failed", path=path, kind=type(error).__name__, reason=str(error))
            raise store_unavailable(error) from error

    def _is_whole(self, path: str, num_bytes: int) -> bool:
        try:
            return self._shelf.store.size(path) == num_bytes
        except NotFound:
            return False


def _change(tenant: TenantId, name: str, version: AdapterVersion) -> Change:
    details = {"artefact": version.artefact, "bytes": version.num_bytes}
    return Change("adapter.upload", f"{name}@{version.number}", tenant, details)


def describe(manifest: Manifest) -> dict[str, Any]:
    """What a version's row keeps of the manifest, for people and placement."""
    return {
        "ranks": sorted({module.rank for module in manifest.modules}),
        "targets": list(manifest.targets),
        "num_modules": len(manifest.modules),
        "num_parameters": manifest.num_parameters,
    }
