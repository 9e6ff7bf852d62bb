"""Builds a worker's parts of uploads, and closes them. One worker of a machine keeps its spool tidy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from gateway.catalog.intake import Intake
from gateway.config import Settings
from gateway.db import Database
from gateway.tenant_slots import TenantSlots
from gateway.uploads.files import OpenUploads
from gateway.uploads.s3_source import S3Source
from gateway.uploads.service import Ages, Uploads
from gateway.uploads.sweeping import sweep_spool
from gateway.uploads.taking import Taking
from gateway.uploads.url_source import UrlSource

TRANSFERS = 64  # requests that write, of one worker
TRANSFERS_TENANT = 8
IMPORT_THREADS = 4


@dataclass(frozen=True, slots=True)
class Arrivals:
    uploads: Uploads
    taking: Taking


@asynccontextmanager
async def open_uploads(
    settings: Settings, database: Database, base_id: str, intake: Intake
) -> AsyncIterator[Arrivals]:
    """Raises ValueError for settings that make no sense."""
    limits = intake.limits
    files = OpenUploads(settings.home / "uploads" / "open")
    ages = Ages(timedelta(hours=settings.upload_idle_h), timedelta(hours=settings.upload_age_h))
    slots = TenantSlots("transfers", TRANSFERS, TRANSFERS_TENANT)
    uploads = Uploads(database, files, intake.room, limits, ages, slots)
    threads = ThreadPoolExecutor(IMPORT_THREADS, thread_name_prefix="import")
    s3 = S3Source.of(settings.import_s3, limits, threads)
    urls = UrlSource.of(settings.import_urls, settings.import_networks, limits)
    taking = Taking(database, base_id, intake, uploads, s3, urls)
    tidy = [sweep_spool(database, files, intake)] if settings.worker_id == 0 else []
    tasks = [asyncio.create_task(each, name="sweep-uploads") for each in tidy]
    try:
        yield Arrivals(uploads, taking)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        threads.shutdown(wait=False, cancel_futures=True)
        taking.close()
        uploads.close()
