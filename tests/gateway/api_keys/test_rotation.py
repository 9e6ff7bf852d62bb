"""Two secrets of one key: until when each is good, and that neither outlives its end anywhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from sqlalchemy import update

from gateway.api_keys import repository
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.grants import BY_ROLE, Grant
from gateway.api_keys.repository import KeyFilters
from gateway.api_keys.schemas import KeyCreate, KeyPatch
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import Actor
from gateway.credentials import Peppers, Secret
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated
from gateway.models import ApiKey
from gateway.principal import Role, Scope, TenantId
from gateway.tenants.epochs import Epochs

ACTOR = Actor("admin:tests")
ALL = BY_ROLE[Role.OPERATOR]
DAY = 86_400


class Room:
    """Keys, and two workers that prove them."""

    def __init__(self, db: Database, redis: Redis, peppers: Peppers, tenant: TenantId) -> None:
        self.db = db
        self.tenant = tenant
        self.keys = ApiKeys(db, peppers, Epochs(redis))
        slow = CacheLimits(entries=100, age_s=3600)  # nothing ages out during a test
        self.workers = [Authenticator(db, peppers, Epochs(redis), slow) for _ in range(2)]

    async def make(self, **fields: object) -> tuple[str, Secret]:
        wanted = KeyCreate(name="test", **fields)  # type: ignore[arg-type]
        key, secret = await self.keys.create(ACTOR, self.tenant, wanted, within=ALL)
        return key.key_id, secret

    async def rotate(self, key_id: str, overlap_s: int, within: Grant = ALL) -> Secret:
        _, secret = await self.keys.rotate(ACTOR, self.tenant, key_id, overlap_s, within=within)
        return secret

    async def opens(self, secret: Secret) -> list[bool]:
        """Of each worker, whether it takes the secret."""
        return [await _takes(worker, secret) for worker in self.workers]

    async def row(self, key_id: str) -> ApiKey:
        return await self.keys.get(self.tenant, key_id, within=ALL)


async def _takes(worker: Authenticator, secret: Secret) -> bool:
    try:
        await worker.fresh_principal(f"Bearer {secret.text}")
    except Unauthenticated:
        return False
    return True


@pytest.fixture
def room(db: Database, redis: Redis, peppers: Peppers, tenant: TenantId) -> Room:
    return Room(db, redis, peppers, tenant)


BOTH, NEITHER = [True, True], [False, False]


async def test_the_old_secret_goes_on_until_the_window_ends_and_on_no_worker_longer(room: Room) -> None:
    key_id, old = await room.make()
    assert await room.opens(old) == BOTH
    new = await room.rotate(key_id, overlap_s=1)
    assert new.public_id == key_id
    opened = await room.opens(old), await room.opens(new)
    row = await room.row(key_id)
    assert row.previous_until is not None
    left_s = (row.previous_until - datetime.now(UTC)).total_seconds()
    assert opened == (BOTH, BOTH) or left_s <= 0
    await asyncio.sleep(max(0.0, left_s) + 0.01)
    assert (await room.opens(old), await room.opens(new)) == (NEITHER, BOTH)


async def test_without_an_overlap_the_old_secrets_end_at_once(room: Room) -> None:
    key_id, first = await room.make()
    second = await room.rotate(key_id, DAY)
    assert await room.opens(first) == BOTH
    with pytest.raises(Conflict, match="still good"):
        await room.rotate(key_id, DAY)
    third = await room.rotate(key_id, 0)
    assert [await room.opens(one) for one in (first, second, third)] == [NEITHER, NEITHER, BOTH]


async def test_the_window_can_be_closed_early(room: Room) -> None:
    key_id, old = await room.make()
    new = await room.rotate(key_id, DAY)
    assert await room.opens(old) == BOTH
    for _ in range(2):
        await room.keys.end_previous(ACTOR, room.tenant, key_id, within=ALL)
        assert (await room.opens(old), await room.opens(new)) == (NEITHER, BOTH)
    await room.rotate(key_id, DAY)  # there is room for the next


async def test_who_still_uses_the_old_secret_can_be_seen(room: Room) -> None:
    key_id, old = await room.make()
    new = await room.rotate(key_id, DAY)
    worker = room.workers[0]
    assert await _takes(worker, new)
    await worker.flush_uses()
    row = await room.row(key_id)
    assert (row.last_used_at is not None, row.previous_used_at) == (True, None)
    assert await _takes(worker, old)
    await worker.flush_uses()
    assert (await room.row(key_id)).previous_used_at is not None


async def test_revoking_ends_both_secrets(room: Room) -> None:
    key_id, old = await room.make()
    new = await room.rotate(key_id, DAY)
    assert (await room.opens(old), await room.opens(new)) == (BOTH, BOTH)
    await room.keys.revoke(ACTOR, room.tenant, key_id, within=ALL)
    assert (await room.opens(old), await room.opens(new)) == (NEITHER, NEITHER)
    for attempt in (
        room.rotate(key_id, 0),
        room.keys.change(ACTOR, room.tenant, key_id, KeyPatch(name="x"), within=ALL),
        room.keys.end_previous(ACTOR, room.tenant, key_id, within=ALL),
    ):
        with pytest.raises(Conflict, match="revoked"):
            await attempt


async def test_both_secrets_move_to_a_new_pepper(room: Room, redis: Redis) -> None:
    key_id, old = await room.make()
    new = await room.rotate(key_id, DAY)
    before, after = SecretStr("pepper-" * 6), SecretStr("rotated-" * 6)
    moving = Authenticator(room.db, Peppers(after, before), Epochs(redis))
    moved = Authenticator(room.db, Peppers(after), Epochs(redis))
    for secret in (old, new):
        assert await _takes(moving, secret)
        assert await _takes(moved, secret)


async def test_a_worker_that_reseals_late_does_not_undo_a_rotation(room: Room, peppers: Peppers) -> None:
    """It read the row before; what it would write is the seal of the old secret."""
    key_id, old = await room.make()
    read = await room.row(key_id)
    new = await room.rotate(key_id, 0)
    late = repository.Seals(old=read.secret_hmac, new=peppers.seal(old), version="new-pepper")
    async with room.db.system_session() as session:
        await repository.reseal(session, read.id, late, previous=False)
    assert (await room.opens(old), await room.opens(new)) == (NEITHER, BOTH)


async def test_policy_changes_hold_for_the_next_request(room: Room) -> None:
    key_id, secret = await room.make()
    header = f"Bearer {secret.text}"
    for worker in room.workers:
        assert (await worker.fresh_principal(header)).allowed_models is None
    until = datetime.now(UTC) + timedelta(days=1)
    wanted = KeyPatch(
        scopes=[Scope.INFERENCE, Scope.USAGE_READ],
        allowed_models=["pirate"],
        allowed_networks=["192.0.2.0/24", "10.0.0.1"],
        service_class="batch",
        expires_at=until,
        tokens_per_minute=9,
    )
    await room.keys.change(ACTOR, room.tenant, key_id, wanted, within=ALL)
    for worker in room.workers:
        now = await worker.fresh_principal(header)
        assert now.scopes == {Scope.INFERENCE, Scope.USAGE_READ}
        assert (now.allowed_models, now.service_class) == (frozenset({"pirate"}), "batch")
        assert now.allowed_networks is not None
        assert now.allowed_networks.texts == ["10.0.0.1/32", "192.0.2.0/24"]
        assert (now.expires_at, now.key_limits.tokens_per_minute) == (until, 9)
    lifted = KeyPatch(allowed_models=None, allowed_networks=None, expires_at=None, tokens_per_minute=None)
    row = await room.keys.change(ACTOR, room.tenant, key_id, lifted, within=ALL)
    assert (row.allowed_models, row.allowed_networks, row.expires_at, row.tokens_per_minute) == (None,) * 4
    assert row.service_class == "batch"


@pytest.mark.parametrize(
    "wanted",
    [
        KeyPatch(),
        KeyPatch(allowed_models=["acme/pirate@2"]),
        KeyPatch(allowed_models=["pirate@live"]),
        KeyPatch(allowed_networks=["192.0.2.1/24"]),
        KeyPatch(allowed_networks=["example.com"]),
        KeyPatch(expires_at=datetime(2020, 1, 1, tzinfo=UTC)),
    ],
)
async def test_a_policy_that_would_mean_nothing_is_refused(room: Room, wanted: KeyPatch) -> None:
    key_id, _ = await room.make()
    with pytest.raises(BadRequest):
        await room.keys.change(ACTOR, room.tenant, key_id, wanted, within=ALL)


async def test_a_key_reaches_no_key_that_can_do_more(room: Room) -> None:
    """Else it would rotate the other and have its secret."""
    held = Grant(frozenset({Scope.INFERENCE, Scope.KEYS_WRITE}), service_class="standard")
    strong, secret = await room.make(scopes=[Scope.ADAPTERS_WRITE])
    weak, _ = await room.make()
    for attempt in (
        room.rotate(strong, 0, within=held),
        room.keys.get(room.tenant, strong, within=held),
        room.keys.revoke(ACTOR, room.tenant, strong, within=held),
        room.keys.change(ACTOR, room.tenant, strong, KeyPatch(scopes=[Scope.INFERENCE]), within=held),
        room.keys.end_previous(ACTOR, room.tenant, strong, within=held),
    ):
        with pytest.raises(NotFound):
            await attempt
    found = await room.keys.page(room.tenant, KeyFilters(), None, 10)
    reached = await room.keys.within_reach(room.tenant, found, held)
    assert [key.key_id for key in reached] == [weak]
    wanted = KeyPatch(service_class="interactive")
    with pytest.raises(Forbidden):
        await room.keys.change(ACTOR, room.tenant, weak, wanted, within=held)
    assert (await room.row(weak)).service_class == "standard"
    assert await room.opens(secret) == BOTH
    await room.rotate(weak, 0, within=held)


async def test_a_scope_of_a_later_release_allows_nothing(room: Room) -> None:
    key_id, secret = await room.make()
    async with room.db.system_session() as session:
        scopes = {"scopes": ["inference", "moon:walk"]}
        await session.execute(update(ApiKey).where(ApiKey.key_id == key_id).values(scopes))
    principal = await room.workers[0].fresh_principal(f"Bearer {secret.text}")
    assert principal.scopes == {Scope.INFERENCE}
    with pytest.raises(NotFound):  # and nobody who might have less takes it
        await room.rotate(key_id, 0, within=Grant(frozenset({Scope.INFERENCE, Scope.KEYS_WRITE})))
    await room.rotate(key_id, 0)
