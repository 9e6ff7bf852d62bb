"""The ledger's months: rows lie where their id's time says, and late partitions take over what was caught
meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import insert, text

from gateway.db import Database, SystemWrite
from gateway.ids import uuid7
from gateway.models import UsageLedger
from gateway.principal import TenantId

MONTHS_AHEAD = 7


def row(request_id: UUID, tenant: TenantId) -> dict[str, object]:
    counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), 1)
    billed = {f"billed_{name}": value for name, value in counts.items()}
    now = datetime.now(UTC)
    return {
        "request_id": request_id,
        "attempt": 1,
        "tenant_id": tenant,
        "key_id": "k",
        "base_id": "b",
        "source": "engine",
        "purpose": "tenant",
        "outcome": "stop",
        "created_at": now,
        "ended_at": now,
        **counts,
        **billed,
    }


async def partition_of(session: SystemWrite, request_id: UUID) -> str:
    found = await session.execute(
        text("SELECT tableoid::regclass::text FROM usage_ledger WHERE request_id = :id"), {"id": request_id}
    )
    return str(found.scalar_one())


def id_at(moment: datetime) -> UUID:
    return UUID(
        int=int(moment.timestamp() * 1000) << 80 | 0x7 << 76 | 0b10 << 62 | uuid4().int & (1 << 62) - 1
    )


async def test_a_row_of_now_lies_in_the_month_of_now(db: Database, tenant: TenantId) -> None:
    request_id = uuid7()
    async with db.system_session() as session:
        await session.execute(insert(UsageLedger).values(row(request_id, tenant)))
        assert await partition_of(session, request_id) == f"usage_ledger_{datetime.now(UTC):%Y%m}"


async def test_a_late_partition_takes_its_rows_from_the_default_one(db: Database, tenant: TenantId) -> None:
    ahead = (datetime.now(UTC).replace(day=1) + timedelta(days=31 * MONTHS_AHEAD)).replace(day=15)
    request_id = id_at(ahead)
    async with db.system_session() as session:
        await session.execute(insert(UsageLedger).values(row(request_id, tenant)))
        assert await partition_of(session, request_id) == "usage_ledger_default"
    async with db.system_session() as session:
        made = (await session.execute(text("SELECT motet_ensure_partitions(9)"))).scalar_one()
        assert made > 0
        assert await partition_of(session, request_id) == f"usage_ledger_{ahead:%Y%m}"
    async with db.system_session() as session:
        assert (await session.execute(text("SELECT motet_ensure_partitions(9)"))).scalar_one() == 0
