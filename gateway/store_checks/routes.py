"""HTTP of the object store: operators only."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit
from gateway.services import Services
from gateway.store_checks.repository import NEWEST_FIRST
from gateway.store_checks.schemas import CheckIn, CheckList, CheckOut, StoreOut

STORE: Final = "/api/v1/store"
CHECKS: Final = f"{STORE}/fsck"


@get(STORE, summary="The object store: whether it answers, what is lost, what is being purged")
async def get_store(services: NamedDependency[Services]) -> StoreOut:
    return await services.store_checks.state()


@post(CHECKS, status_code=202, summary="Check the store against the catalog, and mend it on request")
async def ask_for_check(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[CheckIn]
) -> CheckOut:
    """Control makes it; read it at its id."""
    return CheckOut.of(await services.store_checks.ask(actor, data))


@get(CHECKS, summary="Checks of the store, newest first; the last hundred")
async def list_checks(
    services: NamedDependency[Services], cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> CheckList:
    rows = await services.store_checks.list(NEWEST_FIRST.start(cursor), limit + 1)
    cut = NEWEST_FIRST.cut(rows, limit, lambda row: (row.id,))
    return cut.fill(CheckList, CheckOut.of)


@get(f"{CHECKS}/{{check_id:uuid}}", summary="One check, with what it found")
async def get_check(services: NamedDependency[Services], check_id: FromPath[UUID]) -> CheckOut:
    return CheckOut.of(await services.store_checks.get(check_id))


handlers = [get_store, ask_for_check, list_checks, get_check]
