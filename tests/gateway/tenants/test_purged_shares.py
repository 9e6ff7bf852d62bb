"""A tenant that leaves, its shares on both sides, and the same content under two owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import select

from adapters.digest import artefact_id
from adapters.store import artefact_path
from gateway.catalog import repository as catalog
from gateway.catalog.repository import Line, NewVersion
from gateway.models import AdapterShare
from gateway.principal import TenantId
from gateway.sharing import repository
from tests.gateway.tenants.conftest import House

CONTENT = "c" * 64


async def stored(house: House, line: Line) -> str:
    """A version with the same content for each owner; where its object lies."""
    artefact = artefact_id(str(line.tenant), CONTENT)
    async with house.db.tenant_session(line.tenant) as session:
        adapter = await catalog.lock_or_add_adapter(session, line, "pirate")
        await catalog.add_version(session, adapter, NewVersion(artefact, CONTENT, {}, 6))
    path = artefact_path(str(line.tenant), artefact)
    house.put(path)
    for replica in house.replicas:
        replica.held.add(artefact)
    return path


async def share(house: House, owner: Line, recipient: TenantId | None) -> None:
    async with house.db.system_session() as session:
        adapter = await repository.lock_owned(session, owner.tenant, owner.base_id, "pirate")
        assert adapter is not None
        await repository.put_share(session, adapter, recipient, ["live"])


async def test_both_sides_end_and_equal_bytes_of_others_stay(
    house: House, line: Line, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    other, third = Line(await new_tenant(), line.base_id), await new_tenant()
    gone, kept = await stored(house, line), await stored(house, other)
    assert gone != kept
    for owner, recipient in ((line, other.tenant), (line, None), (other, line.tenant), (other, third)):
        await share(house, owner, recipient)
    await house.list_replicas(line.base_id)
    await house.leave(line.tenant)
    assert await house.run() == 1
    proof = (await house.offboarding(line.tenant)).proof
    assert proof is not None
    found = {each["kind"]: each["found"] for each in proof["deleted"]}
    assert (found["table:adapter_shares"], found["shares_received"]) == (2, 1)
    async with house.db.system_reader() as session:
        left = await session.scalars(
            select(AdapterShare).where(AdapterShare.tenant_id.in_([line.tenant, other.tenant]))
        )
        assert [(each.tenant_id, each.recipient_id) for each in left] == [(other.tenant, third)]
    assert list(house.store.list("tenants")) == [kept]
    survivor = artefact_id(str(other.tenant), CONTENT)
    assert all(replica.held == {survivor} for replica in house.replicas)
