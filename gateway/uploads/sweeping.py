"""What uploads leave behind: rows past their time, and files that no row wants any more."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from gateway.catalog.intake import Intake
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.uploads import repository
from gateway.uploads.files import OpenUploads

log = structlog.get_logger(__name__)

SWEEP_S: Final = 60.0
PAGE: Final = 500


async def delete_expired(database: Database) -> int:
    """Rows of uploads and holds past their time: a job of control's leader."""
    async with database.system_session() as session:
        return await repository.delete_expired(session)


async def remove_unwanted(database: Database, files: OpenUploads) -> int:
    """Files of this machine whose rows are gone; a file in use stays until the next time."""
    removed = 0
    listed = await asyncio.to_thread(files.listed)
    for start in range(0, len(listed), PAGE):
        page = listed[start : start + PAGE]
        async with database.system_reader() as session:
            wanted = await repository.known(session, page)
        for upload in page:
            if upload not in wanted:
                removed += await asyncio.to_thread(files.remove_left, upload)
    return removed


async def sweep_spool(database: Database, files: OpenUploads, intake: Intake) -> None:
    """Until cancelled; one worker of a machine does it, and more would only do it again."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            removed = await remove_unwanted(database, files) + await intake.sweep()
        except (OSError, Unavailable) as error:
            log.warning("spool_not_swept", reason=str(error))
        else:
            if removed:
                log.info("uploads_swept", files=removed)
