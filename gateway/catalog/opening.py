"""Builds the catalog's parts of a worker, and closes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from adapters.base import BaseSpec
from adapters.store import open_store
from gateway.catalog import repository
from gateway.catalog.intake import Bench, Intake
from gateway.catalog.lifecycle import Hints, Lifecycle, Shelf
from gateway.catalog.parts import UploadLimits
from gateway.catalog.spool import Spool
from gateway.config import Settings
from gateway.db import Database
from gateway.proofs.proving import Prover
from gateway.proofs.service import Proofs
from gateway.replicas.registry import Registry
from gateway.tenants.epochs import Epochs
from gateway.uploads.room import Allowance


@dataclass(frozen=True, slots=True)
class Desk:
    """Where adapters come in and go out. One a worker."""

    intake: Intake
    lifecycle: Lifecycle
    proofs: Proofs
    shelf: Shelf


@asynccontextmanager
async def open_catalog(
    settings: Settings,
    database: Database,
    epochs: Epochs,
    base: BaseSpec,
    hints: Hints,
    registry: Registry,
) -> AsyncIterator[Desk]:
    """Makes the base known to the database and clears the spool. Raises `Conflict` when its name belongs to
    another base already, and ValueError for a store URL of an unknown form."""
    async with database.system_session() as session:
        await repository.register_base(session, base.base_id, base.name, msgspec.to_builtins(base))
    shelf = Shelf(database, open_store(settings.store_url), hints)
    lifecycle = Lifecycle(database, epochs, shelf, base.base_id)
    prover = Prover(database, epochs, shelf, registry, base.base_id)
    proofs = Proofs(database, prover, lifecycle, settings.proof_wait_s)
    intake = Intake(database, epochs, shelf, base, _bench(settings), proofs.begin)
    await intake.start()
    try:
        yield Desk(intake, lifecycle, proofs, shelf)
    finally:
        intake.close()
        await proofs.close()


def _bench(settings: Settings) -> Bench:
    limits = UploadLimits(
        settings.max_upload_bytes, idle_s=settings.body_timeout_s, total_s=settings.upload_timeout_s
    )
    return Bench(
        Spool(settings.home / "uploads"),
        limits,
        allowance=Allowance(
            settings.tenant_adapter_bytes, settings.tenant_adapter_versions, settings.tenant_open_uploads
        ),
    )
