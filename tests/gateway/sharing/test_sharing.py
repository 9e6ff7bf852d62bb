"""An adapter that another tenant may use: who reaches it and how, until when, and what both are told."""

from __future__ import annotations

from typing import Any, get_args

from sqlalchemy import select

from gateway.models import WebhookEvent
from gateway.webhooks.kinds import SUBSCRIBABLE
from gateway.webhooks.schemas import Kind
from tests.gateway.sharing.conftest import Party, Town


async def test_a_share_reaches_live_and_what_it_names(town: Town) -> None:
    owner, user = town.party(), town.party()
    for _ in range(3):
        await town.add(owner, "pirate", live=False)
    artefact = await town.add(owner, "pirate")
    model = f"{owner.name}/pirate"
    assert user.model(model).status_code == 404
    assert town.share(owner, "pirate", user).status_code == 200
    assert model in user.models()
    told = user.model(model).json()
    assert (told["id"], told["owned_by"]) == (model, owner.name)
    assert told["parent"] == user.models()[0]
    assert [user.model(f"{model}@{at}").status_code for at in ("live", "4", "3", "canary")] == [
        200, 404, 404, 404
    ]  # fmt: skip
    assert town.share(owner, "pirate", user, reachable=["3"]).status_code == 200
    assert [user.model(f"{model}{at}").status_code for at in ("", "@live", "@3", "@4")] == [
        404, 404, 200, 404
    ]  # fmt: skip
    assert model not in user.models()
    assert town.share(owner, "pirate", user, reachable=None).status_code == 200
    assert [user.model(f"{model}@{n}").status_code for n in (1, 2, 3, 4, 5)] == [200] * 4 + [404]
    found = await town.catalog.resolve(await town.principal(user), model)
    assert found.adapter is not None
    assert (found.adapter.artefact, found.adapter.owner, found.adapter.label) == (artefact, owner.id, model)
    assert found.version_label == "pirate@4"


async def test_all_is_every_other_tenant_and_ends_for_all(town: Town) -> None:
    owner, first, second = town.party(), town.party(), town.party()
    await town.add(owner, "pirate")
    model = f"{owner.name}/pirate"
    town.share(owner, "pirate", None)
    town.share(owner, "pirate", second, reachable=["1"])
    later = town.party()
    assert [each.model(model).status_code for each in (first, second, later, owner)] == [200] * 4
    assert [each.model(f"{model}@1").status_code for each in (first, second)] == [404, 200]
    (mine,) = [
        each for each in second.get("/v1/shared-adapters").json()["data"] if each["owner"] == owner.name
    ]
    assert (mine["id"], mine["reachable"], mine["live"]) == (model, ["1", "live"], True)
    assert town.end(owner, "pirate", None).status_code == 200
    assert [each.model(model).status_code for each in (first, second, later, owner)] == [404, 404, 404, 200]
    assert second.model(f"{model}@1").status_code == 200
    assert town.end(owner, "pirate", None).json()["code"] == "share_not_found"


async def test_what_can_not_be_shared(town: Town) -> None:
    owner, user = town.party(), town.party()
    await town.add(owner, "pirate")
    refused: list[tuple[Any, int, str | None]] = [
        (town.share(owner, "pirate", owner), 409, "shared_with_owner"),
        (town.share(owner, "nothing", user), 404, "adapter_not_found"),
        (town.share(owner, "pirate", user, reachable=[]), 400, None),
        (town.share(owner, "pirate", user, reachable=["01"]), 400, "invalid_value"),
        (town.share(owner, "pirate", user, reachable=["a/b"]), 400, None),
        (town.share(owner, "pirate", user, reachable=["live"] * 17), 400, None),
        (town.share(owner, "pirate", user, unknown="x"), 400, None),
    ]
    for answer, status, code in refused:
        assert answer.status_code == status, answer.text
        assert code is None or answer.json()["code"] == code
    path = f"{owner.root}/adapters/pirate/shares"
    for nobody in ("nobody", user.name, "00000000-0000-7000-8000-000000000000", "ALL"):
        answer = town.client.put(f"{path}/{nobody}", json={}, headers=town.operator.headers)
        assert answer.status_code == 404, nobody
    for headers in (owner.admin, user.admin):  # whoever reaches into two tenants is of neither
        answer = town.client.put(f"{path}/{user.id}", json={}, headers=headers)
        assert answer.status_code in (403, 404)
    assert owner.get("/v1/adapters/pirate/shares").json()["data"] == []


async def test_both_sides_read_what_is_theirs(town: Town) -> None:
    owner, user, other = town.party(), town.party(), town.party()
    await town.add(owner, "pirate")
    hook = {"url": "https://hooks.example/", "kinds": ["adapter.share_changed"]}
    for each in (owner, user, other):
        town.post(f"{each.root}/webhooks", hook)
    town.share(owner, "pirate", user)
    town.share(owner, "pirate", None, reachable=["live", "1"])
    town.end(owner, "pirate", user)
    listed = owner.get("/v1/adapters/pirate/shares").json()["data"]
    assert [(each["recipient_name"], each["reachable"]) for each in listed] == [("all", ["live", "1"])]
    one = town.client.get(f"{owner.root}/adapters/pirate/shares/all", headers=owner.admin).json()
    assert one == listed[0]
    assert user.get("/v1/adapters/pirate/shares").status_code == 404

    def actions(path: str, headers: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
        found = town.client.get(path, params={"action": "adapter."}, headers=headers).json()["data"]
        return [(each["action"], each["target"], each["details"]) for each in reversed(found)]

    assert actions(f"{owner.root}/audit", owner.admin) == [
        ("adapter.share", "pirate", {"with": user.name, "reachable": ["live"]}),
        ("adapter.share", "pirate", {"with": "all", "reachable": ["live", "1"]}),
        ("adapter.unshare", "pirate", {"with": user.name}),
    ]
    assert actions(f"{user.root}/audit", user.admin) == [
        ("adapter.share", f"{owner.name}/pirate", {"reachable": ["live"]}),
        ("adapter.unshare", f"{owner.name}/pirate", {}),
    ]
    assert actions(f"{other.root}/audit", other.admin) == []
    assert await _told(town, user) == [("shared", user.name), ("ended", user.name)]
    assert await _told(town, other) == []
    assert await _told(town, owner) == [("shared", user.name), ("shared", "all"), ("ended", user.name)]
    assert set(get_args(Kind)) == {kind.value for kind in SUBSCRIBABLE}


async def _told(town: Town, party: Party) -> list[tuple[str, str]]:
    async with town.db.tenant_reader(party.id) as session:
        found = await session.scalars(
            select(WebhookEvent.data)
            .where(WebhookEvent.kind == "adapter.share_changed")
            .order_by(WebhookEvent.id)
        )
        return [(data["state"], data["with"]) for data in found]
