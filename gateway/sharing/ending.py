"""Shares end with the adapter: whoever uploads under its name again shares nothing by that."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from gateway.audit.service import Actor, Change, record
from gateway.db import Database, TenantWrite
from gateway.errors import Unavailable
from gateway.models import Adapter
from gateway.principal import TenantId
from gateway.sharing import repository
from gateway.sharing.schemas import EVERYONE
from gateway.sharing.told import Told, tell_recipient

log = structlog.get_logger(__name__)

TOLD_AT_ONCE = 200


async def end_with_adapter(session: TenantWrite, actor: Actor, adapter: Adapter) -> Sequence[TenantId | None]:
    """In the transaction that retires versions of `adapter`, after them: if none is left, its shares end.
    Gives with whom it was shared, whom `tell_recipients` tells after the commit."""
    ended = await repository.end_all(session, adapter)
    if ended:
        details = {"shares": len(ended), "reason": "retired"}
        record(session, actor, Change("adapter.unshare", adapter.name, TenantId(adapter.tenant_id), details))
    return ended


async def tell_recipients(
    database: Database, actor: Actor, owner: TenantId, name: str, ended: Sequence[TenantId | None]
) -> None:
    """The recipients' logs and webhooks, of shares that are over already. Never raises `Unavailable`: what is
    not told then is that something ended, which a request's 404 tells as well."""
    for start in range(0, len(ended), TOLD_AT_ONCE):
        some = ended[start : start + TOLD_AT_ONCE]
        try:
            async with database.system_session() as session:
                names = await repository.names_of(session, [owner, *[each for each in some if each]])
                for recipient in some:
                    to = EVERYONE if recipient is None else names[recipient]
                    told = Told(owner, names[owner], name, recipient, to)
                    await tell_recipient(session, actor, told, "ended")
        except Unavailable:
            log.warning("share_end_not_told", owner=str(owner), adapter=name, recipients=len(some))
