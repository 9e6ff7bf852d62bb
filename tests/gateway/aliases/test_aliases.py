"""Aliases over HTTP: moved whole or by weight, by one hand at a time, and kept by conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import cast
from uuid import uuid4

import msgspec
from litestar.types import Scope
from sqlalchemy import select

from adapters.wire import decode_chat, decode_completion
from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.service import Catalog
from gateway.db import Database
from gateway.inference.sticky import sticky_of
from gateway.models import AuditEvent, WebhookEvent
from tests.gateway.aliases.conftest import Shop, artefact
from tests.gateway.conftest import Operator


def scope(*headers: tuple[bytes, bytes]) -> Scope:
    return cast("Scope", {"type": "http", "headers": list(headers)})


async def test_an_alias_moves_whole_and_by_weight(shop: Shop, db: Database) -> None:
    assert shop.get("/aliases").json()["data"][0]["weights"] == {"1": 100}
    made = shop.put("canary", {"version": 2})
    assert (made.status_code, made.json()["weights"]) == (201, {"2": 100})
    epoch = (await shop.principal(db)).epoch
    spread = shop.put("canary", {"weights": {"2": 95, "3": 5}})
    assert (spread.status_code, spread.json()["version"]) == (200, 2)
    assert spread.headers["etag"] == f'"{spread.json()["revision"]}"' != made.headers["etag"]
    assert (await shop.principal(db)).epoch == epoch + 1
    again = shop.put("canary", {"weights": {"3": 5, "2": 95}})
    assert again.json() == spread.json()  # nothing to do, and nothing told
    assert (await shop.principal(db)).epoch == epoch + 1
    assert shop.get("/aliases/canary").json() == spread.json()
    named = [shop.get(f"/versions/{number}").json()["aliases"] for number in (1, 2, 3)]
    assert named == [[LIVE], ["canary"], ["canary"]]
    gone = shop.client.delete(f"{shop.url}/aliases/canary", headers=shop.headers)
    assert gone.json()["id"] == f"{shop.name}@canary"
    assert shop.get("/aliases/canary").json()["error"]["code"] == "alias_not_found"
    async with db.system_reader() as session:
        audit = select(AuditEvent).where(AuditEvent.tenant_id == shop.tenant).order_by(AuditEvent.id)
        told = [(event.action, event.details.get("to")) for event in await session.scalars(audit)]
        hooks = select(WebhookEvent).where(WebhookEvent.tenant_id == shop.tenant).order_by(WebhookEvent.id)
        heard = [hook.data for hook in await session.scalars(hooks) if hook.kind == "adapter.alias_changed"]
    moves = [each for each in told if each[0].startswith("alias.")]
    assert moves == [("alias.move", {"2": 100}), ("alias.move", {"2": 95, "3": 5}), ("alias.delete", None)]
    assert [data["weights"] for data in heard] == [{"2": 100}, {"2": 95, "3": 5}, None]


async def test_two_hands_do_not_undo_each_other(shop: Shop) -> None:
    read = shop.get("/aliases/live").headers["etag"]
    assert shop.put(LIVE, {"version": 2}, **{"if-match": read}).status_code == 200
    late = shop.put(LIVE, {"version": 3}, **{"if-match": read})
    assert (late.status_code, late.json()["error"]["code"]) == (412, "precondition_failed")
    assert late.json()["error"]["current"] == {"weights": {"2": 100}}
    assert late.headers["etag"] == shop.get("/aliases/live").headers["etag"]
    there = shop.put(LIVE, {"version": 3}, **{"if-none-match": "*"})
    assert (there.status_code, there.json()["error"]["current"]) == (412, {"weights": {"2": 100}})
    assert shop.put("new", {"version": 3}, **{"if-none-match": "*"}).status_code == 201
    assert shop.put("newer", {"version": 3}, **{"if-match": read}).status_code == 412  # deleted meanwhile
    assert shop.put(LIVE, {"version": 3}, **{"if-none-match": '"1"'}).status_code == 400
    wrong = {**shop.headers, "if-match": read}
    assert shop.client.delete(f"{shop.url}/aliases/live", headers=wrong).status_code == 412
    assert shop.get("/aliases/live").json()["version"] == 2


async def test_an_alias_says_what_its_viewer_may_do(shop: Shop, operator: Operator) -> None:
    root = f"/api/v1/tenants/{shop.tenant}"
    member = {"email": f"{uuid4()}@example.com", "role": "viewer"}
    made = shop.client.post(f"{root}/members", json=member, headers=operator.headers).json()["id"]
    tokens = f"{root}/members/{made}/tokens"
    secret = shop.client.post(tokens, json={"name": "t"}, headers=operator.headers).json()["secret"]
    viewer = {"authorization": f"Bearer {secret}"}

    def can(headers: dict[str, str]) -> dict[str, list[str]]:
        listed = shop.client.get(f"{root}/adapters/{shop.name}/aliases", headers=headers).json()["data"]
        one = shop.client.get(f"{root}/adapters/{shop.name}/aliases/live", headers=headers).json()
        assert one in listed
        return {alias["alias"]: alias["can"] for alias in listed}

    shop.put("spread", {"weights": {"1": 90, "2": 10}})
    every = ["move", "delete", "begin_rollout"]
    assert can(operator.headers) == {LIVE: every, "spread": ["move", "delete"]}
    assert can(viewer) == {LIVE: [], "spread": []}
    reads = {"name": "r", "scopes": ["adapters:read"]}
    key = shop.client.post(f"{root}/keys", json=reads, headers=operator.headers).json()["secret"]
    own = shop.client.get(f"{shop.url}/aliases/live", headers={"authorization": f"Bearer {key}"})
    assert own.json()["can"] == []
    begun = shop.post("/rollouts", {"to": 2}).json()
    assert begun["can"] == ["pause", "promote", "roll_back"]
    assert shop.get("/aliases/live").json()["rollout"] == begun["id"]
    assert can(operator.headers)[LIVE] == []
    place = f"{root}/adapters/{shop.name}/rollouts/{begun['id']}"
    paused = shop.client.post(f"{place}/pause", headers=operator.headers).json()
    assert paused["can"] == ["resume", "promote", "roll_back"]
    assert shop.client.get(place, headers=viewer).json()["can"] == []
    assert shop.post(f"/rollouts/{begun['id']}/rollback").json()["can"] == []
    assert can(operator.headers)[LIVE] == every


async def test_what_no_alias_may_be_is_refused(shop: Shop) -> None:
    for alias, body, status, code in (
        ("7", {"version": 1}, 400, "invalid_alias"),
        (LIVE, {}, 400, "invalid_value"),
        (LIVE, {"version": 1, "weights": {"1": 100}}, 400, "invalid_value"),
        (LIVE, {"weights": {"1": 60, "2": 39}}, 400, "invalid_value"),
        (LIVE, {"weights": {str(n): 10 for n in range(1, 11)}}, 400, None),
        (LIVE, {"weights": {"1": 100, "2": 0}}, 400, None),
        (LIVE, {"weights": {"9999999999": 100}}, 400, "invalid_value"),
        (LIVE, {"version": 9}, 409, "version_not_ready"),
    ):
        answer = shop.put(alias, body)
        assert answer.status_code == status, (body, answer.text)
        if code is not None:
            assert answer.json()["error"]["code"] == code, body
    assert shop.get("/aliases/live").json()["weights"] == {"1": 100}


async def test_a_version_with_a_part_is_not_retired(shop: Shop, operator: Operator) -> None:
    shop.put(LIVE, {"weights": {"1": 90, "2": 10}})
    for number in (1, 2):
        answer = shop.client.delete(f"{shop.url}/versions/{number}", headers=shop.headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "version_in_use")
    assert shop.client.delete(f"{shop.url}/versions/3", headers=shop.headers).status_code == 200
    assert shop.client.delete(shop.url, headers=shop.headers).status_code == 200


async def test_whoever_moves_an_alias_whole_ends_its_spread(shop: Shop, db: Database) -> None:
    """As an upload does, of this release or of one that knows no weights."""
    before = shop.put(LIVE, {"weights": {"1": 90, "2": 10}}).json()
    async with db.tenant_session(shop.tenant) as session:
        adapter = await repository.lock_adapter(session, shop.line, shop.name)
        assert adapter is not None
        await repository.move_alias(session, adapter, LIVE, 3)
    after = shop.get("/aliases/live").json()
    assert after["weights"] == {"3": 100}
    assert after["revision"] > before["revision"]


async def test_a_conversation_stays_with_its_version_while_weights_stay(shop: Shop, db: Database) -> None:
    catalog = Catalog(db, shop.services.catalog.base)
    shop.put(LIVE, {"weights": {"1": 80, "2": 20}})

    async def version(content: str, *later: str, user: str | None = None) -> int:
        messages = [{"role": "user", "content": text} for text in (content, *later)]
        body = {"model": shop.name, "messages": messages, "user": user}
        request = decode_chat(_json(body))
        sticky = partial(sticky_of, scope(), request, uuid4())
        resolved = await catalog.resolve(await shop.principal(db), shop.name, sticky)
        assert resolved.adapter is not None
        assert resolved.adapter.artefact == artefact(resolved.adapter.version)
        return resolved.adapter.version

    begun = {f"Hello {n}": await version(f"Hello {n}") for n in range(200)}
    assert 10 < Counter(begun.values())[2] < 80  # 40, give or take
    for content, number in list(begun.items())[:50]:
        assert await version(content, "And then?") == number
    users = {f"u{n}": await version("Hi", user=f"u{n}") for n in range(50)}
    assert len(set(users.values())) == 2
    assert {user: await version("Else", user=user) for user in users} == users
    shop.put(LIVE, {"weights": {"1": 60, "2": 40}})
    now = {content: await version(content) for content in begun}
    assert all(now[content] == 2 for content, number in begun.items() if number == 2)
    assert sum(now.values()) > sum(begun.values())


def test_what_a_request_is_known_by() -> None:
    request_id = uuid4()
    chat = decode_chat(_json({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}))
    text = decode_completion(_json({"model": "m", "prompt": "Hi"}))
    session, retried = scope((b"x-motet-session", b"s1")), scope((b"idempotency-key", b"k1"))
    assert sticky_of(session, chat, request_id) == sticky_of(session, text, uuid4()) == b"session\0s1"
    assert sticky_of(retried, text, request_id) == sticky_of(retried, text, uuid4())
    assert sticky_of(retried, chat, request_id) == sticky_of(scope(), chat, uuid4())
    assert sticky_of(scope(), text, request_id) != sticky_of(scope(), text, uuid4())


def _json(body: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(body)
