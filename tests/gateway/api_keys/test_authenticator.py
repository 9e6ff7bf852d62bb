"""Proving keys against a real database: who gets in, who does not, and how soon a change is felt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from sqlalchemy import select, text

from gateway.api_keys.authenticator import REFUSED_ENTRIES, Authenticator, CacheLimits
from gateway.api_keys.grants import BY_ROLE
from gateway.api_keys.schemas import KeyCreate
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import Actor
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated, Unavailable
from gateway.models import ApiKey, AuditEvent, Tenant, TenantStatus
from gateway.principal import Role, Scope, TenantId
from gateway.tenants.epochs import Epochs
from gateway.tenants.schemas import TenantPatch
from gateway.tenants.service import Tenants

ACTOR = Actor("admin:tests")
ALL = BY_ROLE[Role.OPERATOR]
SLOW = CacheLimits(entries=100, age_s=3600)  # nothing ages out during a test


@pytest.fixture
def epochs(redis: Redis) -> Epochs:
    return Epochs(redis)


@pytest.fixture
def keys(db: Database, peppers: Peppers, epochs: Epochs) -> ApiKeys:
    return ApiKeys(db, peppers, epochs)


@pytest.fixture
def authenticator(db: Database, peppers: Peppers, epochs: Epochs) -> Authenticator:
    return Authenticator(db, peppers, epochs, SLOW)


async def header(keys: ApiKeys, tenant: TenantId, wanted: KeyCreate | None = None) -> tuple[str, str]:
    key, secret = await keys.create(ACTOR, tenant, wanted or KeyCreate(name="test"), within=ALL)
    return key.key_id, f"Bearer {secret.text}"


async def test_a_key_proves_its_tenant_scopes_and_limits(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId
) -> None:
    wanted = KeyCreate(
        name="test",
        scopes=[Scope.ADAPTERS_WRITE, Scope.INFERENCE],
        tokens_per_minute=7,
        allowed_models=["a", "b"],
    )
    key_id, bearer = await header(keys, tenant, wanted)
    for _ in range(2):
        principal = await authenticator.principal(bearer)
        assert (principal.tenant, principal.key_id) == (tenant, key_id)
        assert principal.may(Scope.ADAPTERS_READ)
        assert not principal.may(Scope.USAGE_READ)
        assert principal.key_limits.tokens_per_minute == 7
        assert principal.key_limits.requests_per_minute is None
        assert principal.allowed_models == frozenset({"a", "b"})


async def test_the_secret_is_not_in_the_database(keys: ApiKeys, db: Database, tenant: TenantId) -> None:
    _, bearer = await header(keys, tenant)
    secret = bearer.rpartition("_")[2]
    async with db.system_reader() as session:
        rows = await session.execute(
            text("SELECT k::text FROM api_keys k UNION ALL SELECT a::text FROM audit_events a")
        )
        assert not [row for (row,) in rows if secret in row]


@pytest.mark.parametrize(
    "bearer", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer mt_short_x", "Bearer " + "x" * 9000]
)
async def test_malformed_keys_are_refused_without_asking_the_database(
    bearer: str | None, peppers: Peppers, epochs: Epochs
) -> None:
    nowhere = "postgresql://x:x@127.0.0.1:1/x"
    db = Database(nowhere, nowhere)
    with pytest.raises(Unauthenticated) as caught:
        await Authenticator(db, peppers, epochs).principal(bearer)
    assert caught.value.headers["www-authenticate"] == "Bearer"
    await db.close()


async def test_a_database_that_is_away_is_never_a_401(peppers: Peppers, epochs: Epochs) -> None:
    nowhere = "postgresql://x:x@127.0.0.1:1/x"
    db = Database(nowhere, nowhere)
    bearer = f"Bearer mt_{'a' * 12}_{'a' * 52}"
    with pytest.raises(Unavailable):
        await Authenticator(db, peppers, epochs).principal(bearer)
    await db.close()


async def test_a_right_id_with_a_wrong_secret_is_refused(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId
) -> None:
    key_id, bearer = await header(keys, tenant)
    await authenticator.principal(bearer)
    with pytest.raises(Unauthenticated):
        await authenticator.principal(f"Bearer mt_{key_id}_{'a' * 52}")


async def test_a_revoked_key_is_out_with_the_next_request(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId, epochs: Epochs
) -> None:
    key_id, bearer = await header(keys, tenant)
    before = (await authenticator.fresh_principal(bearer)).epoch
    await keys.revoke(ACTOR, tenant, key_id, within=ALL)
    assert await epochs.current(tenant) == before + 1
    with pytest.raises(Unauthenticated):
        await authenticator.fresh_principal(bearer)
    assert (await keys.revoke(ACTOR, tenant, key_id, within=ALL)).revoked_at is not None


async def test_an_expired_key_is_out_also_when_cached(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId, db: Database
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    _, bearer = await header(keys, tenant, KeyCreate(name="test", expires_at=soon))
    await authenticator.principal(bearer)
    while datetime.now(UTC) < soon:
        await _pause()
    with pytest.raises(Unauthenticated):
        await authenticator.principal(bearer)
    with pytest.raises(BadRequest):
        await header(keys, tenant, KeyCreate(name="test", expires_at=soon))


async def test_a_suspended_tenant_is_out_and_comes_back(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId, db: Database, epochs: Epochs
) -> None:
    _, bearer = await header(keys, tenant)
    tenants = Tenants(db, epochs)
    await authenticator.fresh_principal(bearer)
    await tenants.change(ACTOR, tenant, TenantPatch(status=TenantStatus.SUSPENDED))
    with pytest.raises(Forbidden) as caught:
        await authenticator.fresh_principal(bearer)
    assert caught.value.code == "tenant_suspended"
    await tenants.change(ACTOR, tenant, TenantPatch(status=TenantStatus.ACTIVE))
    fresh = Authenticator(db, Peppers(SecretStr("pepper-" * 6)), epochs)
    assert (await fresh.principal(bearer)).tenant == tenant


async def test_a_tenants_weight_is_its_keys(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId, db: Database, epochs: Epochs
) -> None:
    _, bearer = await header(keys, tenant)
    assert (await authenticator.fresh_principal(bearer)).share_weight == 1
    await Tenants(db, epochs).change(ACTOR, tenant, TenantPatch(share_weight=7))
    assert (await authenticator.fresh_principal(bearer)).share_weight == 7


async def test_a_key_moves_to_the_new_pepper_when_it_is_used(
    keys: ApiKeys, db: Database, epochs: Epochs, tenant: TenantId
) -> None:
    key_id, bearer = await header(keys, tenant)
    old, new = SecretStr("pepper-" * 6), SecretStr("rotated-" * 6)
    await Authenticator(db, Peppers(new, old), epochs).principal(bearer)
    assert (await Authenticator(db, Peppers(new), epochs).principal(bearer)).key_id == key_id
    with pytest.raises(Unauthenticated):
        await Authenticator(db, Peppers(old), epochs).principal(bearer)


async def test_refusals_are_kept_within_bounds(authenticator: Authenticator) -> None:
    for number in range(3):
        with pytest.raises(Unauthenticated):
            await authenticator.principal(f"Bearer mt_{'a' * 12}_{'abc'[number] * 52}")
    assert len(authenticator._refused) == 3
    assert authenticator._refused._entries == REFUSED_ENTRIES


async def test_last_use_is_written(
    keys: ApiKeys, authenticator: Authenticator, tenant: TenantId, db: Database
) -> None:
    key_id, bearer = await header(keys, tenant)
    await authenticator.principal(bearer)
    await authenticator.flush_uses()
    async with db.system_reader() as session:
        row = (await session.scalars(select(ApiKey).where(ApiKey.key_id == key_id))).one()
    assert row.last_used_at is not None


async def test_another_tenants_key_is_not_found(
    keys: ApiKeys, tenant: TenantId, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    key_id, _ = await header(keys, tenant)
    with pytest.raises(NotFound):
        await keys.revoke(ACTOR, await new_tenant(), key_id, within=ALL)


async def test_what_was_done_is_in_the_audit_log(keys: ApiKeys, tenant: TenantId, db: Database) -> None:
    key_id, _ = await header(keys, tenant)
    await keys.revoke(ACTOR, tenant, key_id, within=ALL)
    async with db.tenant_reader(tenant) as session:
        events = (await session.scalars(select(AuditEvent).order_by(AuditEvent.id))).all()
    assert [(event.actor, event.action, event.target) for event in events] == [
        ("admin:tests", "api_key.create", key_id),
        ("admin:tests", "api_key.revoke", key_id),
    ]


async def test_too_many_keys_are_a_conflict(
    keys: ApiKeys, tenant: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.api_keys.repository.MAX_KEYS", 1)
    await header(keys, tenant)
    with pytest.raises(Conflict):
        await header(keys, tenant)


async def test_an_epoch_never_goes_back(epochs: Epochs, tenant: TenantId, db: Database) -> None:
    await epochs.publish(tenant, 5)
    await epochs.publish(tenant, 3)
    assert await epochs.current(tenant) == 5
    async with db.system_reader() as session:
        assert (await session.scalars(select(Tenant.epoch).where(Tenant.id == tenant))).one() == 1


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.02)
