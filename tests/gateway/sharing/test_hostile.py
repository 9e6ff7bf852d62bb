"""Shares from the view of those who want more than they were given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from gateway.catalog.service import Catalog
from gateway.errors import ModelNotFound
from gateway.limits.levels import plan_of, today
from gateway.principal import Scope
from tests.gateway.sharing.conftest import Party, Town


async def shared(town: Town) -> tuple[Party, Party, str]:
    """An owner, a user of its adapter `pirate`, and what the user calls it."""
    owner, user = town.party(), town.party()
    await town.add(owner, "pirate")
    assert town.share(owner, "pirate", user).status_code == 200
    return owner, user, f"{owner.name}/pirate"


async def test_a_user_reads_nothing_of_what_it_uses(town: Town) -> None:
    owner, user, model = await shared(town)
    assert user.model(model).status_code == 200
    for path in ("", "/versions", "/versions/1", "/shares", "/shares/all", "/limits"):
        for name in ("pirate", model, model.replace("/", "%2F")):
            for root, headers in (("/v1", user.headers), (user.root, user.admin), (owner.root, user.admin)):
                answer = town.client.get(f"{root}/adapters/{name}{path}", headers=headers)
                assert answer.status_code in (404, 405), (root, name, path, answer.text)
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("DELETE", "", {}),
        ("DELETE", "/versions/1", {}),
        ("PUT", f"/shares/{user.id}", {}),
        ("DELETE", f"/shares/{user.id}", {}),
        ("PATCH", "/limits", {"max_parallel": 1}),
    ]
    for method, path, body in changes:
        for root in (user.root, owner.root):
            for headers in (user.admin, user.headers):
                url = f"{root}/adapters/pirate{path}"
                answer = town.client.request(method, url, json=body, headers=headers)
                assert answer.status_code in (401, 403, 404), (method, url, answer.text)
    told = user.get("/v1/shared-adapters").text + user.model(model).text + user.get("/v1/models").text
    for secret in (str(owner.id), "ranks", "artefact", "digest", "q_proj"):
        assert secret not in told
    assert owner.get("/v1/adapters/pirate/versions/1").json()["state"] == "ready"


async def test_a_key_for_bare_names_reaches_no_shared_one(town: Town) -> None:
    owner, user, model = await shared(town)
    await town.add(user, "pirate")
    ask = town.client.get
    narrow = town.key(user, allowed_models=["pirate"], scopes=[Scope.INFERENCE, Scope.KEYS_WRITE])
    wide = town.key(user, allowed_models=[model], scopes=[Scope.INFERENCE, Scope.ADAPTERS_READ])
    for headers, reached in ((narrow, {"pirate", f"{user.name}/pirate"}), (wide, {model})):
        for name in ("pirate", f"{user.name}/pirate", model):
            status = 200 if name in reached else 404
            assert ask(f"/v1/models/{name}", headers=headers).status_code == status, name
    assert [each["id"] for each in ask("/v1/models", headers=narrow).json()["data"]] == ["pirate"]
    assert [each["id"] for each in ask("/v1/models", headers=wide).json()["data"]] == [model]
    assert len(ask("/v1/shared-adapters", headers=wide).json()["data"]) == 1
    blind = town.key(user, allowed_models=["pirate"], scopes=[Scope.ADAPTERS_READ])
    assert ask("/v1/shared-adapters?limit=1", headers=blind).json()["data"] == []
    beyond = {"name": "x", "allowed_models": [model]}
    answer = town.client.post("/v1/keys", json=beyond, headers=narrow)
    assert (answer.status_code, answer.json()["error"]["param"]) == (403, "allowed_models")
    for wrong in (f"{user.name}/pirate", f"{model}@1", f"{model}/x", "/pirate", f"{owner.name}/"):
        wanted = {"name": "x", "allowed_models": [wrong]}
        answer = town.client.post(f"{user.root}/keys", json=wanted, headers=user.admin)
        assert (answer.status_code, answer.json()["param"]) == (400, "allowed_models"), wrong


async def test_names_that_collide_mean_their_own(town: Town) -> None:
    """A tenant called as the base is, and one adapter's name in three places."""
    base = town.services.catalog.base.name
    owner, user = town.party(), town.party()
    theirs, mine = await town.add(owner, "pirate"), await town.add(user, "pirate")
    town.share(owner, "pirate", user)
    town.share(user, "pirate", owner)
    catalog = town.catalog
    for asks, other, own, foreign in ((user, owner, mine, theirs), (owner, user, theirs, mine)):
        principal = await town.principal(asks)
        for model, artefact in (
            ("pirate", own),
            (f"{asks.name}/pirate", own),
            (f"{other.name}/pirate", foreign),
            (base, None),
        ):
            for _ in range(2):  # the second from the cache
                adapter = (await catalog.resolve(principal, model)).adapter
                assert (adapter and adapter.artefact) == artefact, model
        for nothing in (f"{other.name}/{base}", f"{base}/pirate", f"{other.name}", f"{other.name}/pirate@2"):
            with pytest.raises(ModelNotFound):
                await catalog.resolve(principal, nothing)


@contextmanager
def statements(town: Town) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    found: list[str] = []
    engine = town.db._app.sync_engine

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_whatever_is_hidden_takes_the_same_steps_and_answers_the_same_bytes(town: Town) -> None:
    owner, friend, model = await shared(town)
    stranger = town.party()
    retired = town.party()
    await town.add(retired, "pirate")
    town.share(retired, "pirate", stranger)
    town.client.delete("/v1/adapters/pirate", headers=retired.headers)
    hidden = {
        "of an owner that is not there": "nobody/pirate",
        "of one that shares nothing so called": f"{owner.name}/poet",
        "shared with another": model,
        "of a version": f"{model}@1",
        "that was shared and is retired": f"{retired.name}/pirate",
        "of the friend, who has none": f"{friend.name}/pirate",
        "that it may reach in part only": f"{owner.name}/pirate@canary",
    }
    principal, catalog = await town.principal(stranger), town.catalog
    steps, bodies = set(), set()
    for why, each in hidden.items():
        for _ in range(2):  # nothing unknown is kept
            with statements(town) as asked, pytest.raises(ModelNotFound):
                await catalog.resolve(principal, each)
            steps.add(tuple(asked))
        answer = stranger.model(each)
        assert answer.status_code == 404, why
        bodies.add(answer.text.replace(each, "<model>"))
    assert len(steps) == 1
    assert len(bodies) == 1
    assert len(catalog.resolved) == 0


async def test_the_database_begins_at_what_is_shared_with_whoever_asks(town: Town) -> None:
    """With nothing shared under the name, no other table is looked at, whatever is in it."""
    owner, user, _ = await shared(town)
    for asks, name, rows in ((town.party(), "pirate", 0), (user, "poet", 0), (user, "pirate", 1)):
        async with town.db.tenant_reader(asks.id) as session:
            found = await session.execute(
                text("SELECT * FROM motet_shared_adapter(:base, :owner, :name, 'live')"),
                {"base": town.services.catalog.base_id, "owner": owner.name, "name": name},
            )
            assert len(found.all()) == rows
            for table in ("adapters", "adapter_versions", "aliases", "adapter_shares"):
                seen = text(f"SELECT count(*) FROM {table} WHERE tenant_id <> :me")
                assert (await session.execute(seen, {"me": asks.id})).scalar_one() == 0, table


async def test_an_owners_limits_hold_for_each_user_by_itself(town: Town) -> None:
    """One that takes all that it may leaves another its own."""
    owner, user, model = await shared(town)
    second = town.party()
    town.share(owner, "pirate", second)
    limits = f"{owner.root}/adapters/pirate/limits"
    town.client.patch(limits, json={"requests_per_minute": 2}, headers=owner.admin)
    await town.add(user, "pirate")
    catalog: Catalog = town.catalog
    keys = set()
    for asks, name in ((user, model), (second, model), (owner, "pirate"), (user, "pirate")):
        principal = await town.principal(asks)
        plan = plan_of(principal, today()).of_model(await catalog.resolve(principal, name))
        for bucket in plan.buckets:
            assert bucket.limit == 2
            assert str(bucket.key).startswith(f"{{{asks.id}}}")
            keys.add(str(bucket.key))
    assert len(keys) == 3  # the user's own has no limit
