"""A request for another tenant's adapter: its owner's weights, and all the rest whoever asks."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import aiohttp
import pytest

from gateway.aliases.weighted import Sticky
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.errors import ModelNotFound
from gateway.principal import CacheMode, CachePolicy, Limits, Principal, TenantId
from tests.gateway.inference.conftest import ADAPTER, Worker
from tests.gateway.inference.upstream import Upstream

OWNER = TenantId(uuid4())
ASKED = {"model": "acme/pirate", "messages": [{"role": "user", "content": "Hé"}], "temperature": 0}


class Shared:
    """A catalog in which `acme` shares one adapter, until it does no more."""

    def __init__(self) -> None:
        self.ended = False

    async def resolve(self, principal: Principal, model: str, sticky: Sticky | None = None) -> Resolved:
        if self.ended or model != "acme/pirate":
            raise ModelNotFound(model)
        adapter = ResolvedAdapter("pirate", 3, ADAPTER, OWNER, Limits(), owner_name="acme")
        return Resolved(model, "base-id", adapter)


@pytest.fixture
def catalog(worker: Worker) -> Shared:
    found = Shared()
    worker.walk._parts = replace(worker.walk._parts, catalog=found)
    return found


async def test_the_owners_weights_under_the_users_salt_on_the_users_bill(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, catalog: Shared
) -> None:
    async with http.post(worker.url + "/v1/chat/completions", json=ASKED) as answer:
        assert answer.status == 200
        told = {name: answer.headers[f"x-motet-{name}"] for name in ("adapter", "version", "digest")}
    assert told == {"adapter": "acme/pirate", "version": "3", "digest": ADAPTER}
    user, sent = worker.keys.now, upstream.only().headers
    assert {name: sent[f"x-motet-{name}"] for name in ("tenant", "key", "salt", "artefact", "owner")} == {
        "tenant": str(user.tenant),
        "key": user.key_id,
        "salt": user.salt,
        "artefact": ADAPTER,
        "owner": str(OWNER),
    }
    (event,) = worker.events()
    assert (event.tenant_id, event.owner_id) == (user.tenant, OWNER)
    assert (event.adapter_name, event.adapter_version, event.artefact) == ("pirate", 3, ADAPTER)
    assert event.billed_prompt_tokens > 0
    (remembered,) = worker.recorder.ring
    assert (remembered.tenant_id, remembered.model) == (user.tenant, "acme/pirate")
    await worker.settled()


async def test_a_cached_answer_is_its_users_own_and_ends_with_the_share(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, catalog: Shared
) -> None:
    """A second user of the same weights computes the same question anew; after the end nobody is answered."""

    async def ask() -> tuple[int, str | None]:
        async with http.post(worker.url + "/v1/chat/completions", json=ASKED) as answer:
            await answer.read()
            return answer.status, answer.headers.get("x-motet-cache")

    first = replace(worker.keys.now, response_cache=CachePolicy(CacheMode.GREEDY, 1, age_s=60))
    second = replace(first, tenant=TenantId(uuid4()), tenant_name="other", key_id="k2", salt="other salt")
    for user, wanted in ((first, "miss"), (first, "hit"), (second, "miss"), (second, "hit"), (first, "hit")):
        worker.keys.now = user
        assert await ask() == (200, wanted)
    assert upstream.requests == 2
    assert len({seen.headers["x-motet-salt"] for seen in upstream.seen.values()}) == 2
    catalog.ended = True
    assert (await ask())[0] == 404
    assert upstream.requests == 2
    assert [event.tenant_id for event in worker.events()] == [
        each.tenant for each in (first, first, second, second, first)
    ]
    assert all(event.owner_id == OWNER for event in worker.events())
