"""An upload's way from the wire to a stored version: spool → prove → digest → pack → store → rows.

Until the last step nothing can be seen of it, and a refusal anywhere leaves nothing behind. The last step is
one transaction: the version's row, its facts, and the task of proving it on a replica. What answers under
which name changes when that proof passes (`gateway/proofs/conclusion.py`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import structlog

from adapters import digest, packed, proof
from adapters.base import BaseSpec
from adapters.manifest import Manifest
from adapters.proof import ProofUnavailable
from adapters.refused import AdapterRefused
from adapters.store import NotFound, StoreError, artefact_path
from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository, stored
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.names import LIVE
from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART, Parts, UploadLimits, receive_parts
from gateway.catalog.repository import AdapterRow, Line, NewVersion
from gateway.catalog.spool import Spool, spool_errors
from gateway.catalog.store_faults import store_unavailable
from gateway.db import Database, TenantWrite
from gateway.errors import Unavailable, Unprocessable
from gateway.models import Adapter, AdapterVersion, VersionState
from gateway.principal import TenantId
from gateway.proofs import repository as proofs
from gateway.proofs.acceptance import Acceptance, read_acceptance
from gateway.proofs.facts import Facts, facts_of
from gateway.proofs.proving import LEASE
from gateway.proofs.repository import TaskKey
from gateway.tenant_slots import RETRY_AFTER_S, TenantSlots
from gateway.tenants.epochs import Epochs, bump
from gateway.uploads import repository as uploads
from gateway.uploads.room import STEP_BYTES, Allowance, Hold, Room

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload that was let in: who owns the adapter, and its name. `alias` points to the version once it
    is ready; None: none does."""

    tenant: TenantId
    actor: Actor
    name: str
    alias: str | None = LIVE


@dataclass(frozen=True, slots=True)
class Body:
    """A multipart body as it arrives."""

    boundary: str
    chunks: AsyncIterator[bytes]
    length: int | None = None  # announced


@dataclass(frozen=True, slots=True)
class HeldDirectory:
    """A directory of the spool for one upload, and the room that it has been promised."""

    path: Path
    hold: Hold


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
    per_worker: int = 64  # on their way in: each holds a connection, a file and a buffer
    per_tenant: int = 2
    proofs: int = 4  # at a time; who has all bytes here waits for its turn
    proof_wait_s: float = 60.0
    proof_timeout_s: float = 300.0
    allowance: Allowance = field(default_factory=Allowance)


@dataclass(frozen=True, slots=True)
class Proved:
    """A proved and packed adapter, still on the spool."""

    new: NewVersion
    packed: Path
    hold: Hold
    facts: Facts
    acceptance: Acceptance | None


class Intake:
    """Takes uploads. One a worker; all its limits are stated in `UploadLimits` and `Bench`. `begin_proof`
    hears of each new version and under whom its task is held; without it, control proves them."""

    def __init__(
        self,
        database: Database,
        epochs: Epochs,
        shelf: Shelf,
        base: BaseSpec,
        bench: Bench,
        begin_proof: Callable[[TaskKey, UUID], None] | None = None,
    ) -> None:
        self._database = database
        self._epochs = epochs
        self._shelf = shelf
        self._begin_proof = begin_proof
        self._base = base
        self._base_id = base.base_id
        self.limits = bench.limits
        self._bench = bench
        self.room = Room(database, bench.allowance)
        self._slots = TenantSlots("uploads", bench.per_worker, bench.per_tenant)
        self._turns = asyncio.Semaphore(bench.proofs)
        self._threads = ThreadPoolExecutor(bench.proofs, thread_name_prefix="upload")

    async def start(self) -> None:
        """Clears the spool of what killed workers left there."""
        await self.sweep()

    async def sweep(self) -> int:
        """The same, with the room that was promised to it; gives how many directories that were."""
        left = await asyncio.to_thread(self._bench.spool.sweep)
        if left:
            log.info("spool_swept", directories=len(left))
            async with self._database.system_session() as session:
                await uploads.delete_holds_at(session, left)
        return len(left)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def take(self, upload: Upload, body: Body) -> Stored:
        """Raises the refusals of `receive_parts` and `take_files`."""
        async with self.directory(upload.tenant) as directory:
            hold = directory.hold
            if body.length is not None:
                await hold.reach(body.length)
            reach = functools.partial(hold.reach, step=STEP_BYTES)
            parts = await receive_parts(body.chunks, body.boundary, directory.path, self.limits, reach)
            return await self.take_files(upload, parts, directory)

    async def take_files(self, upload: Upload, parts: Parts, directory: HeldDirectory) -> Stored:
        """From files that lie in the directory, however they came there. Raises `Unprocessable` for what is
        no adapter of this base, `Conflict` when the tenant has no room for it, `Unavailable` when too much
        is going on."""
        proved = await self._prove(upload.tenant, parts, directory)
        return await self._publish(upload, proved)

    @asynccontextmanager
    async def directory(self, tenant: TenantId) -> AsyncIterator[HeldDirectory]:
        """Gone when the block ends, with the room that is held for it. Raises `RateLimited` or `Unavailable`
        when the tenant, or this worker, has as many as it may."""
        with self._slots.hold(tenant), spool_errors():
            held = self._bench.spool.directory()
            path = await asyncio.to_thread(held.__enter__)
            try:
                async with self.room.hold(tenant, path.name) as hold:
                    yield HeldDirectory(path, hold)
            finally:
                # Quick (two or three files), and on this thread so that no cancellation can skip it.
                held.__exit__(None, None, None)

    async def _prove(self, tenant: TenantId, parts: Parts, directory: HeldDirectory) -> Proved:
        # Threads of its own: a proof may wait for minutes, and the shared ones count prompts.
        job = functools.partial(self._prove_and_pack, tenant, parts, directory)
        try:
            async with self._turn():
                return await asyncio.get_running_loop().run_in_executor(self._threads, job)
        except AdapterRefused as refused:
            raise Unprocessable(refused.message, param=refused.part, code=str(refused.code)) from None
        except ProofUnavailable as error:
            log.warning("proof_unavailable", reason=str(error))
            raise Unavailable(str(error), retry_after_s=RETRY_AFTER_S) from error

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A place among the proofs. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(self._bench.proof_wait_s):
                await self._turns.acquire()
        except TimeoutError:
            message = "Too many uploads are being proved here; try again."
            raise Unavailable(message, retry_after_s=RETRY_AFTER_S) from None
        try:
            yield
        finally:
            self._turns.release()

    def _prove_and_pack(self, tenant: TenantId, parts: Parts, directory: HeldDirectory) -> Proved:
        acceptance = None if parts.acceptance is None else read_acceptance(parts.acceptance.read_bytes())
        examined = proof.examine(
            parts.config.read_bytes(),
            parts.weights,
            self._base,
            timeout_s=self._bench.proof_timeout_s,
            max_weights_bytes=self.limits.max_bytes,
        )
        manifest = examined.manifest
        content = digest.content_digest(manifest, parts.weights, self._base_id)
        artefact = digest.artefact_id(str(tenant), content)
        target = directory.path / "packed"
        info = packed.pack(manifest, parts.weights, target, artefact=artefact, base_id=self._base_id)
        files = {CONFIG_PART: parts.config, WEIGHTS_PART: parts.weights}
        facts = facts_of(examined, self._base, files, info.num_bytes)
        new = NewVersion(artefact, content, describe(manifest), info.num_bytes)
        return Proved(new, info.path, directory.hold, facts, acceptance)

    async def _publish(self, upload: Upload, proved: Proved) -> Stored:
        line = Line(upload.tenant, self._base_id)
        same = await self._find_same(line, upload.name, proved.new.content_digest)
        if same is not None:
            return await self._bring_back(line, same, proved) if same.version.lost_at else same
        await proved.hold.become_version(proved.new.num_bytes)
        # A put that failed left nothing, or what control finds in the store and removes: to ask a store that
        # is away to delete would only double the wait.
        await self._put(line.tenant, proved)
        holder = None if self._begin_proof is None else uuid4()
        try:
            stored = await self._add_rows(line, upload, proved, holder)
        except BaseException:
            await asyncio.shield(self._shelf.clear(line.tenant, [proved.new.artefact]))
            raise
        if stored.created and self._begin_proof is not None and holder is not None:
            self._begin_proof(TaskKey(line.tenant, stored.version.id), holder)
        return stored

    async def _bring_back(self, line: Line, same: Stored, proved: Proved) -> Stored:
        """The store has lost this content: it is put again, whatever lies there, and resolves again."""
        await self._put(line.tenant, proved, anew=True)
        async with self._database.tenant_session(line.tenant) as session:
            await stored.lock_artefact(session, proved.new.artefact)
            await stored.found_again(session, line.tenant, proved.new.artefact)
            epoch = await bump(session, line.tenant)
        await self._epochs.publish(line.tenant, epoch)
        return Stored(same.adapter, same.version, created=False)

    async def _find_same(self, line: Line, name: str, content_digest: str) -> Stored | None:
        async with self._database.tenant_reader(line.tenant) as session:
            found = await repository.find_adapter(session, line, name)
            if found is None:
                return None
            version = await repository.find_same(session, found.adapter, content_digest)
        return None if version is None else Stored(found, version, created=False)

    async def _add_rows(self, line: Line, upload: Upload, proved: Proved, holder: UUID | None) -> Stored:
        """What the upload ended as."""
        async with self._database.tenant_session(line.tenant) as session:
            await stored.lock_artefact(session, proved.new.artefact)
            adapter = await repository.lock_or_add_adapter(session, line, upload.name)
            version = await repository.find_same(session, adapter, proved.new.content_digest)
            created = version is None
            if version is None:
                await self._put(line.tenant, proved)  # again: a delete may have taken it since
                await stored.found_again(session, line.tenant, proved.new.artefact)
                version = await _add_version(session, adapter, upload, proved)
                await proved.hold.settle(session, upload.name, version.number)
                key = TaskKey(line.tenant, version.id)
                await proofs.add_task(session, key, holder=holder, lease=LEASE)
            row = await repository.find_adapter(session, line, upload.name)
            assert row is not None
        return Stored(row, version, created)

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


async def _add_version(
    session: TenantWrite, adapter: Adapter, upload: Upload, proved: Proved
) -> AdapterVersion:
    version = await repository.add_version(session, adapter, proved.new, VersionState.UPLOADED, upload.alias)
    acceptance = None if proved.acceptance is None else msgspec.to_builtins(proved.acceptance)
    await proofs.add_facts(session, version, msgspec.to_builtins(proved.facts), acceptance)
    record(session, upload.actor, _change(upload.tenant, upload.name, version))
    return version


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
