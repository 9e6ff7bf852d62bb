"""Makes the exports that were asked for: a job of the leader.

Order, so that a reader of the store never sees a manifest without its files: the files under the export's own
id, its manifest, and last the month's `manifest.json`, which names the current export. Whatever dies in
between, the next round does it again, with the same bytes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from adapters.store import NotFound, ObjectStore, StoreError
from gateway.audit.service import SYSTEM
from gateway.billing.exports import manifest as manifests
from gateway.billing.exports import repository, told
from gateway.billing.exports.files import CSV, MANIFEST, PARQUET, ChargeFiles, written
from gateway.billing.exports.focus import ChargeGroup, Frame, Residue, Row, residue_row, rows_of
from gateway.billing.exports.places import current_path, file_path, wanted
from gateway.billing.exports.schemas import Failure
from gateway.billing.metrics import EXPORTS
from gateway.catalog.spool import Spool
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.models import BillingExport
from gateway.usage.watermark import journals_complete_until

log = structlog.get_logger(__name__)

MAX_ROWS: Final = 5_000_000
KEPT_SNAPSHOTS: Final = 10
"""Of an open month and one scope; the files of older ones are removed."""

BATCH: Final = 20


class ExportFailed(Exception):
    """For a reason that trying again won't change; told to whoever asked, in a word and in a sentence."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


class Maker:
    """`run_once` raises `Unavailable` and `StoreError`; what waits stays, and is tried again."""

    def __init__(self, db: Database, store: ObjectStore, home: Path, issuer: str) -> None:
        self._db = db
        self._store = store
        self._spool = Spool(home, "export-")
        self._issuer = issuer

    async def run_once(self) -> int:
        """Gives the number of exports made. Of each closed month all tenants' is made unasked."""
        await self._ask_for_closed()
        async with self._db.system_reader() as session:
            waiting = await repository.waiting(session, BATCH)
        made = 0
        for export in waiting:
            try:
                await self._make(export)
                made += 1
                EXPORTS.labels("made").inc()
            except (Unavailable, StoreError):
                raise
            except ExportFailed as error:
                log.warning("export_failed", export=export.id, reason=str(error))
                await self._fail(export, error.failure, str(error))
            except Exception:  # one that can't be made must not hold up the others
                log.exception("export_failed", export=export.id)
                await self._fail(export, Failure.FAULT, "A fault of ours: control's log says which.")
        return made

    async def _fail(self, export: BillingExport, failure: Failure, reason: str) -> None:
        EXPORTS.labels("failed").inc()
        async with self._db.system_session() as session:
            await repository.move(session, export.id, "failed", reason, failure)
            await told.failed(session, export, reason)

    async def _ask_for_closed(self) -> None:
        async with self._db.system_session() as session:
            for month in await repository.closed_without_export(session):
                through = await repository.through_seq(session, None, month)
                asked = wanted(self._issuer, None, month, through, True)
                await repository.ask(session, asked | {"requested_by": SYSTEM.name})

    async def _make(self, export: BillingExport) -> None:
        with self._spool.directory() as folder:
            rendered = await self._write(export, folder)
            async with self._db.system_session() as session:
                kept = await repository.keep_manifest(session, export.id, rendered)
            _check_same(kept, folder)
            (folder / MANIFEST).write_bytes(kept)
            for each in (CSV, PARQUET, MANIFEST):
                await self._put(folder / each, file_path(export, each))
            if await self._supersedes(export, folder):
                await self._put(folder / MANIFEST, current_path(export))
        async with self._db.system_session() as session:
            await repository.move(session, export.id, "done")
            await told.ready(session, export)
        await self._remove_older(export)

    async def _write(self, export: BillingExport, folder: Path) -> bytes:
        """Both files into the folder; gives the manifest. Raises `ExportFailed`."""
        sums = manifests.Sums()
        async with self._db.system_reader() as session:
            statements = await repository.statements(session, export) if export.closed else []
            invoices = {residue.tenant_id: invoice for invoice, residue in statements}
            frame = Frame(export.month, self._issuer, invoices)
            files = await asyncio.to_thread(ChargeFiles, folder)
            with files:
                async for page in repository.groups(session, export):
                    await asyncio.to_thread(_add, files, sums, _rows(page, frame))
                await asyncio.to_thread(_add, files, sums, _residues(statements, frame))
                done = await asyncio.to_thread(files.finish)
            exact = await repository.exact_sum(session, export)
            known = manifests.Completeness(
                await journals_complete_until(session),
                await repository.num_unknown(session, export),
                await repository.num_unpriced(session, export),
            )
        rounding = sum(residue.units for _, residue in statements)
        if sum(sums.units.values()) != exact + rounding:
            raise ExportFailed(Failure.SUMS_DIFFER, "The rows do not come to what was charged.")
        return manifests.render(export, [invoice for invoice, _ in statements], done, sums, known)

    async def _put(self, source: Path, path: str) -> None:
        await asyncio.to_thread(self._store.put_file, source, path)

    async def _supersedes(self, export: BillingExport, folder: Path) -> bool:
        """Whether the month's manifest names an older export, or none."""
        current = folder / "current.json"
        try:
            await asyncio.to_thread(self._store.fetch_file, current_path(export), current)
        except NotFound:
            return True
        return (export.closed, export.through_seq) >= manifests.through_of(current.read_bytes())

    async def _remove_older(self, export: BillingExport) -> None:
        if export.closed:
            return
        async with self._db.system_reader() as session:
            older = await repository.older_snapshots(session, export, KEPT_SNAPSHOTS)
        for each in older:
            async with self._db.system_session() as session:
                await repository.move(session, each.id, "superseded", "A newer snapshot took its place.")
            for name in (MANIFEST, CSV, PARQUET):  # the manifest goes first
                await asyncio.to_thread(self._store.delete, file_path(each, name))


def _add(files: ChargeFiles, sums: manifests.Sums, rows: list[Row]) -> None:
    if files.num_rows + len(rows) > MAX_ROWS:
        raise ExportFailed(Failure.TOO_LARGE, f"It has over {MAX_ROWS} rows: ask for one tenant's.")
    for row in rows:
        sums.add(row)
    files.add(rows)


def _rows(page: list[ChargeGroup], frame: Frame) -> list[Row]:
    return [row for group in page for row in rows_of(group, frame)]


def _residues(statements: list[tuple[str, Residue]], frame: Frame) -> list[Row]:
    """Of those statements that rounding changed."""
    return [residue_row(residue, frame) for _, residue in statements if residue.units]


def _check_same(manifest: bytes, folder: Path) -> None:
    """A second making of the same export has the same bytes as the first. Raises `ExportFailed`."""
    for name, sha256 in manifests.files_of(manifest).items():
        if written(folder / name).sha256 != sha256:
            raise ExportFailed(
                Failure.BYTES_DIFFER,
                "It was made before with other bytes, by another release of this software.",
            )
