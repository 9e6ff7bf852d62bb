"""How a share ends, however it ends: no worker begins another request on it, and whatever comes under the
name later is not shared by that."""

from __future__ import annotations

import asyncio

import pytest

from deploy.local.services import DatabaseUrls
from gateway.api_keys.authenticator import Authenticator
from gateway.api_keys.revocation import Revocation
from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line
from gateway.catalog.service import Catalog
from gateway.credentials import Peppers
from gateway.errors import ModelNotFound
from gateway.tenants.epochs import Epochs, bump
from tests.gateway.api_keys.test_revocation import until
from tests.gateway.sharing.conftest import Party, Town


async def answers(catalog: Catalog, town: Town, user: Party, model: str) -> str | None:
    """The artefact that it resolves to; None = 404."""
    try:
        found = await catalog.resolve(await town.principal(user), model)
    except ModelNotFound:
        return None
    return found.adapter.artefact if found.adapter is not None else None


@pytest.fixture
def worker(town: Town, database: DatabaseUrls, peppers: Peppers) -> tuple[Catalog, Revocation]:
    """What a worker keeps of names, and how it hears that they moved."""
    catalog = town.catalog
    keys = Authenticator(town.db, peppers, Epochs(town.services.redis))
    return catalog, Revocation(database.app, town.db, keys, catalog.resolved)


async def move_live(town: Town, owner: Party, name: str, number: int) -> None:
    async with town.db.tenant_session(owner.id) as session:
        adapter = await repository.lock_adapter(session, Line(owner.id, town.services.catalog.base_id), name)
        assert adapter is not None
        await repository.move_alias(session, adapter, LIVE, number)
        await bump(session, owner.id)


async def test_a_sweep_alone_tells_of_moves_and_ends(town: Town, worker: tuple[Catalog, Revocation]) -> None:
    """Nothing of the user's own moved: its epoch is the same all along."""
    catalog, revocation = worker
    owner, user, other = town.party(), town.party(), town.party()
    first, second = await town.add(owner, "pirate"), await town.add(owner, "pirate", live=False)
    model = f"{owner.name}/pirate"
    town.share(owner, "pirate", user)
    town.share(owner, "pirate", other)
    assert await answers(catalog, town, user, model) == first
    await move_live(town, owner, "pirate", 2)
    assert await answers(catalog, town, user, model) == first  # kept, for a second at most
    assert catalog.resolved.tenants() == [owner.id]
    await revocation.sweep()
    assert catalog.resolved.tenants() == []
    assert [await answers(catalog, town, each, model) for each in (user, other)] == [second, second]
    town.end(owner, "pirate", user)
    await revocation.sweep()
    assert [await answers(catalog, town, each, model) for each in (user, other)] == [None, second]
    await revocation.sweep()
    assert len(catalog.resolved) == 1  # what did not move stays


async def test_a_notification_tells_workers_that_nobody_asked(
    town: Town, worker: tuple[Catalog, Revocation]
) -> None:
    catalog, revocation = worker
    owner, user = town.party(), town.party()
    await town.add(owner, "pirate")
    town.share(owner, "pirate", None)
    async with revocation.running():
        await asyncio.wait_for(revocation.listening.wait(), 10)
        assert await answers(catalog, town, user, f"{owner.name}/pirate") is not None
        await asyncio.to_thread(town.end, owner, "pirate", None)
        await until(lambda: not catalog.resolved.tenants())
    assert await answers(catalog, town, user, f"{owner.name}/pirate") is None


@pytest.mark.parametrize("by", ["retire", "purge"])
async def test_what_its_owner_ends_is_gone_and_its_name_not_shared_again(
    town: Town, worker: tuple[Catalog, Revocation], by: str
) -> None:
    catalog, revocation = worker
    owner, user = town.party(), town.party()
    await town.add(owner, "pirate")
    await town.add(owner, "pirate")
    await town.add(owner, "poet")
    model = f"{owner.name}/pirate"
    for to in (user, None):
        town.share(owner, "pirate", to, reachable=None)
    town.share(owner, "poet", user)
    retired = town.client.delete("/v1/adapters/pirate/versions/2", headers=owner.headers)
    assert retired.status_code == 200
    assert [user.model(f"{model}{at}").status_code for at in ("", "@2", "@1")] == [404, 404, 200]
    assert await answers(catalog, town, user, f"{model}@1") is not None
    path = "/v1/adapters/pirate"
    if by == "retire":
        assert town.client.delete(path, headers=owner.headers).status_code == 200
    else:
        purged = town.client.post(f"{path}/purge", json={"confirm": "pirate"}, headers=owner.headers)
        assert purged.status_code in (200, 202), purged.text
    await revocation.sweep()
    assert await answers(catalog, town, user, f"{model}@1") is None
    log = town.client.get(f"{user.root}/audit", headers=user.admin).json()["data"]
    assert (log[0]["action"], log[0]["target"]) == ("adapter.unshare", model)
    own = town.client.get(f"{owner.root}/audit?action=adapter.", headers=owner.admin).json()["data"]
    assert f"adapter.{by}" in {each["action"] for each in own[:3]}
    unshared = next(each for each in own if each["action"] == "adapter.unshare")
    assert unshared["details"] == {"shares": 2, "reason": "retired"}
    await town.add(owner, "pirate")  # of another kind, and nobody's but its owner's
    assert user.model(model).status_code == 404
    assert [each["id"] for each in user.get("/v1/shared-adapters").json()["data"]] == [f"{owner.name}/poet"]


async def test_an_owner_that_leaves_takes_its_adapters_along(
    town: Town, worker: tuple[Catalog, Revocation]
) -> None:
    catalog, revocation = worker
    owner, user = town.party(), town.party()
    await town.add(owner, "pirate")
    town.share(owner, "pirate", None)
    town.share(owner, "pirate", user)
    model = f"{owner.name}/pirate"
    suspended = {"reason": "unpaid"}
    town.client.post(f"{owner.root}/suspend", json=suspended, headers=town.operator.headers)
    assert await answers(catalog, town, user, model) is not None  # its users did nothing
    leaving = {"confirm": owner.name}
    town.client.post(f"{owner.root}/offboarding", json=leaving, headers=town.operator.headers)
    await revocation.sweep()
    assert await answers(catalog, town, user, model) is None
    assert model not in user.models()
    assert town.share(owner, "pirate", user).json()["code"] == "tenant_offboarding"
    town.client.delete(f"{owner.root}/offboarding", headers=town.operator.headers)
    assert await answers(catalog, town, user, model) is not None
    town.client.post(f"{user.root}/offboarding", json={"confirm": user.name}, headers=town.operator.headers)
    assert town.share(owner, "pirate", user).json()["code"] == "tenant_offboarding"
