"""Rotations, revocations and losses in any order, on two workers: no secret is taken after its end by a
worker that could know, and none that is good is refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.grants import BY_ROLE
from gateway.api_keys.revocation import Revocation
from gateway.api_keys.schemas import KeyCreate, KeyPatch
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import Actor
from gateway.credentials import Peppers, Secret
from gateway.db import Database
from gateway.errors import Conflict, Unauthenticated
from gateway.principal import Role, TenantId
from gateway.redis import TenantKeys
from gateway.tenants.epochs import Epochs

ACTOR = Actor("admin:tests")
ALL = BY_ROLE[Role.OPERATOR]
DAY = 86_400
WORKERS = 2

steps = st.lists(
    st.one_of(
        st.tuples(st.just("rotate"), st.sampled_from([0, DAY])),
        st.tuples(st.sampled_from(["end", "revoke", "lose"]), st.just(0)),
        st.tuples(st.just("change"), st.integers(1, 1_000)),
        st.tuples(st.sampled_from(["ask", "sweep"]), st.integers(0, WORKERS - 1)),
    ),
    max_size=14,
)


@dataclass
class World:
    """A key, who proves it, and what should be: its good secrets, its limit, which workers may not know."""

    keys: ApiKeys
    tenant: TenantId
    workers: list[Authenticator]
    sweeps: list[Revocation]
    redis: Redis
    key_id: str
    secrets: list[Secret]
    good: list[Secret]
    limit: int | None = None
    unaware: set[int] = field(default_factory=set)

    async def do(self, step: str, value: int) -> None:
        match step:
            case "ask":
                await self.check(value)
            case "sweep":
                await self.sweeps[value].sweep()
                self.unaware.discard(value)
            case "lose":
                await self.redis.delete(TenantKeys(self.tenant).epoch)
                self.unaware = set(range(WORKERS))  # what they hold now, Redis can't gainsay
            case _:
                try:
                    await self.change(step, value)
                except Conflict:  # revoked, or the secret before is still good
                    assert not self.good or (step == "rotate" and value and len(self.good) == 2)

    async def change(self, step: str, value: int) -> None:
        match step:
            case "rotate":
                _, secret = await self.keys.rotate(ACTOR, self.tenant, self.key_id, value, within=ALL)
                self.good = [secret, *(self.good[:1] if value else [])]
                self.secrets.append(secret)
            case "end":
                await self.keys.end_previous(ACTOR, self.tenant, self.key_id, within=ALL)
                self.good = self.good[:1]
            case "revoke":
                await self.keys.revoke(ACTOR, self.tenant, self.key_id, within=ALL)
                self.good = []
            case "change":
                wanted = KeyPatch(max_parallel=value)
                await self.keys.change(ACTOR, self.tenant, self.key_id, wanted, within=ALL)
                self.limit = value

    async def check(self, number: int) -> None:
        for secret in self.secrets:
            try:
                found = await self.workers[number].fresh_principal(f"Bearer {secret.text}")
            except Unauthenticated:
                assert secret not in self.good
            else:
                if number not in self.unaware:
                    assert secret in self.good
                    assert found.key_limits.max_parallel == self.limit


async def test_no_secret_outlives_its_end_whatever_is_lost(
    database: DatabaseUrls, db: Database, redis: Redis, peppers: Peppers, tenant: TenantId
) -> None:
    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(taken=steps)
    def collect(taken: list[tuple[str, int]]) -> None:
        histories.append(taken)

    histories: list[list[tuple[str, int]]] = []
    collect()
    for history in histories:
        world = await _world(database, db, redis, peppers, tenant)
        for step, value in history:
            await world.do(step, value)
        await asyncio.gather(*(sweep.sweep() for sweep in world.sweeps))
        world.unaware.clear()
        for number in range(WORKERS):
            await world.check(number)


async def _world(
    database: DatabaseUrls, db: Database, redis: Redis, peppers: Peppers, tenant: TenantId
) -> World:
    keys = ApiKeys(db, peppers, Epochs(redis))
    slow = CacheLimits(entries=100, age_s=3600)  # nothing ages out during a test
    workers = [Authenticator(db, peppers, Epochs(redis), slow) for _ in range(WORKERS)]
    key, secret = await keys.create(ACTOR, tenant, KeyCreate(name="test"), within=ALL)
    sweeps = [Revocation(database.app, db, worker) for worker in workers]
    return World(keys, tenant, workers, sweeps, redis, key.key_id, [secret], [secret])
