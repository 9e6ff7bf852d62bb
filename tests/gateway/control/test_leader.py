"""Who leads when the database fails in the middle of it."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from gateway.control.leader import leadership
from gateway.db import Database
from gateway.errors import Unavailable


async def test_a_leader_whose_connection_is_cut_stops_leading_and_may_lead_again(db: Database) -> None:
    """As `Unavailable`, which control waits out; and no lock stays behind in a pool."""

    async def lead() -> None:
        async with leadership(db) as leader:
            found = await leader._connection.execute(text("SELECT pg_backend_pid()"))
            async with db.system_session() as other:
                await other.execute(
                    text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": found.scalar_one()}
                )
            await leader.confirm()

    with pytest.raises(Unavailable):
        await lead()
    async with leadership(db) as leader:
        await leader.confirm()
