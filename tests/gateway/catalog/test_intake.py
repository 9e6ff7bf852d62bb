"""Uploads from their bytes to a version that resolves: real database, real store, real checks of the files.
The replica that proves them is a fake, which says what a test has it say."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from redis.asyncio import Redis
from sqlalchemy.exc import IntegrityError

from adapters.base import BaseSpec
from adapters.store import ObjectStore, artefact_path, open_store
from deploy.bench.random_adapters import Recipe, write_adapter
from gateway.audit.service import Actor
from gateway.catalog import repository
from gateway.catalog.intake import Bench, Body, Intake, Stored, Upload
from gateway.catalog.lifecycle import Lifecycle, Shelf
from gateway.catalog.names import LIVE
from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART, UploadLimits
from gateway.catalog.service import Catalog
from gateway.catalog.spool import Spool
from gateway.db import Database
from gateway.errors import (
    ApiError,
    BadRequest,
    Conflict,
    ModelNotFound,
    NotFound,
    RateLimited,
    Unprocessable,
)
from gateway.ids import uuid7
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.proofs.proving import Prover
from gateway.proofs.service import Proofs
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Registry, Replica
from gateway.tenants.epochs import Epochs
from gateway.uploads.room import Allowance
from tests.gateway.inference.upstream import TOKEN, Upstream

ACTOR = Actor("key:test")
SCOPES = frozenset({Scope.INFERENCE, Scope.ADAPTERS_WRITE})


@dataclass
class RecordedHints:
    """Stands for what replicas are told."""

    prefetched: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)

    def prefetch(self, owner: TenantId, artefact: str) -> None:
        self.prefetched.append(artefact)

    def retire(self, owner: TenantId, artefact: str) -> None:
        self.retired.append(artefact)


@dataclass
class Room:
    base: BaseSpec
    store: ObjectStore
    spool: Spool
    hints: RecordedHints
    catalog: Catalog
    intake: Intake
    lifecycle: Lifecycle
    database: Database
    replica: Upstream
    registry: Registry
    prover: Prover
    proofs: Proofs

    async def upload(
        self, tenant: TenantId, name: str, folder: Path, *more: tuple[str, bytes], alias: str | None = LIVE
    ) -> Stored:
        """With its proof over."""
        files = [(part, (folder / part).read_bytes()) for part in (CONFIG_PART, WEIGHTS_PART)]
        return await self.upload_body(tenant, name, body_of(*files, *more), alias)

    async def upload_body(self, tenant: TenantId, name: str, body: bytes, alias: str | None = LIVE) -> Stored:
        stored = await self.intake.take(
            Upload(tenant, ACTOR, name, alias), Body("xyz", chunked(body), len(body))
        )
        row, version = await self.proofs.settle(tenant, stored.adapter, stored.version, 20)
        return Stored(row, version, stored.created)

    def kept(self) -> list[str]:
        """Everything on spool and in the store."""
        return [str(path) for path in self.spool.root.rglob("*")] + list(self.store.list(""))


@pytest.fixture(scope="session")
def base(demo_model_dir: Path) -> BaseSpec:
    return BaseSpec.from_dir(demo_model_dir, "base-of-intake")


@pytest.fixture
async def room(db: Database, redis: Redis, base: BaseSpec, tmp_path: Path) -> AsyncIterator[Room]:
    base = msgspec.structs.replace(base, name=f"base-{uuid4().hex[:12]}")  # this test's own
    async with db.system_session() as session:
        await repository.register_base(session, base.base_id, base.name, {})
    store, hints, spool = open_store(f"file://{tmp_path}/store"), RecordedHints(), Spool(tmp_path / "uploads")
    shelf, epochs = Shelf(db, store, hints), Epochs(redis)
    bench = Bench(spool, UploadLimits(64 << 20, idle_s=5, total_s=30))
    lifecycle = Lifecycle(db, epochs, shelf, base.base_id)
    async with (
        Upstream().running() as replica,
        ReplicaSession(connect_timeout_s=2, max_connections=16) as session,
    ):
        registry = Registry([Replica(replica.url, MotetDriver(session, replica.url, TOKEN))])
        await registry.poll_once()
        prover = Prover(db, epochs, shelf, registry, base.base_id)
        proofs = Proofs(db, prover, lifecycle, wait_s=20)
        intake = Intake(db, epochs, shelf, base, bench, proofs.begin)
        await intake.start()
        catalog = Catalog(db, base)
        yield Room(
            base, store, spool, hints, catalog, intake, lifecycle, db, replica, registry, prover, proofs
        )
        intake.close()
        await proofs.close()


@pytest.fixture(scope="session")
def small(base: BaseSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(
        tmp_path_factory.mktemp("small"), base, Recipe(1, rank=2, layers=[0, 3], targets=["q_proj"])
    )


@pytest.fixture(scope="session")
def other(base: BaseSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(
        tmp_path_factory.mktemp("other"), base, Recipe(2, rank=4, layers=[1], targets=["o_proj"])
    )


def body_of(*parts: tuple[str, bytes]) -> bytes:
    blocks = [
        f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + data + b"\r\n"
        for name, data in parts
    ]
    return b"".join(blocks) + b"--xyz--\r\n"


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 60_000):
        yield body[start : start + 60_000]
        await asyncio.sleep(0)


def principal(tenant: TenantId, epoch: int, allowed: frozenset[str] | None = None) -> Principal:
    return Principal(tenant, "acme", "k", SCOPES, Limits(), Limits(), "salt", epoch, allowed_models=allowed)


async def test_an_upload_answers_under_its_name_and_leaves_the_spool_empty(
    room: Room, tenant: TenantId, small: Path
) -> None:
    stored = await room.upload(tenant, "pirate", small)
    version = stored.version
    assert (stored.created, version.number, version.state, stored.adapter.aliases) == (
        True,
        1,
        "ready",
        {"live": 1},
    )
    assert version.manifest == {
        "ranks": [2],
        "targets": ["q_proj"],
        "num_modules": 2,
        "num_parameters": 2 * 2 * 576 * 2,
    }
    assert room.kept() == [artefact_path(str(tenant), version.artefact)]
    assert room.store.size(room.kept()[0]) == version.num_bytes
    assert room.hints.prefetched == [version.artefact]
    resolved = await room.catalog.resolve(principal(tenant, 2), "pirate")
    assert resolved.adapter is not None
    assert (resolved.adapter.artefact, resolved.adapter.owner) == (version.artefact, tenant)
    assert resolved.version_label == "pirate@1"
    assert (await room.catalog.resolve(principal(tenant, 2), "acme/pirate@1")).adapter == resolved.adapter


async def test_the_same_content_again_is_the_version_that_has_it(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    first = await room.upload(tenant, "pirate", small)
    second = await room.upload(tenant, "pirate", other)
    again = await room.upload(tenant, "pirate", small)
    assert [s.version.number for s in (first, second, again)] == [1, 2, 1]
    assert (again.created, again.adapter.aliases) == (False, {"live": 2})
    elsewhere = await room.upload(tenant, "corsair", small)
    assert (elsewhere.created, elsewhere.version.artefact) == (True, first.version.artefact)


async def test_a_name_follows_its_tenants_epoch_past_the_cache(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    """Every change of a tenant's catalog moves its epoch: a cached name is never older."""
    for number, folder in enumerate((small, other), start=1):
        stored = await room.upload(tenant, "pirate", folder)
        resolved = await room.catalog.resolve(principal(tenant, 1 + number), "pirate")
        assert resolved.adapter is not None
        assert (resolved.adapter.version, resolved.adapter.artefact) == (number, stored.version.artefact)


async def test_an_upload_whose_rows_fail_leaves_nothing_in_the_store(room: Room, small: Path) -> None:
    """Of a tenant that is not there, which only the last step's foreign key can know."""
    with pytest.raises(IntegrityError):
        await room.upload(TenantId(uuid7()), "pirate", small)
    assert room.kept() == []


async def test_uploads_at_once_to_one_name_are_one_after_the_other(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    done = await asyncio.gather(room.upload(tenant, "busy", small), room.upload(tenant, "busy", small))
    assert sorted(s.created for s in done) == [False, True]
    assert {s.version.number for s in done} == {1}
    assert (await room.upload(tenant, "busy", other)).version.number == 2


async def test_a_third_upload_at_once_is_refused(room: Room, tenant: TenantId, small: Path) -> None:
    gate = asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        await gate.wait()
        async for chunk in chunked(body_of((CONFIG_PART, b"{}"))):
            yield chunk

    waiting = [
        asyncio.create_task(room.intake.take(Upload(tenant, ACTOR, "a"), Body("xyz", held())))
        for _ in range(2)
    ]
    await asyncio.sleep(0.05)
    with pytest.raises(RateLimited):
        await room.upload(tenant, "a", small)
    gate.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BadRequest, BadRequest]
    assert (await room.upload(tenant, "a", small)).created


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        (b"PK\x03\x04" + os.urandom(400), "not_safetensors"),  # torch.save writes a zip of pickles
        (b"\x80\x02}q\x00" + os.urandom(400), "not_safetensors"),
        ((10**6).to_bytes(8, "little") + b"{}", "header_malformed"),
        (b"", "not_safetensors"),
    ],
)
async def test_a_refusal_leaves_nothing(
    room: Room, tenant: TenantId, small: Path, weights: bytes, code: str
) -> None:
    body = body_of((CONFIG_PART, (small / CONFIG_PART).read_bytes()), (WEIGHTS_PART, weights))
    with pytest.raises(Unprocessable) as caught:
        await room.upload_body(tenant, "bad", body)
    assert (caught.value.code, caught.value.param) == (code, WEIGHTS_PART)
    assert room.kept() == []
    with pytest.raises(NotFound):
        await room.lifecycle.get_adapter(principal(tenant, 1), "bad")


async def test_a_client_that_leaves_leaves_nothing(room: Room, tenant: TenantId, small: Path) -> None:
    body = body_of((CONFIG_PART, (small / CONFIG_PART).read_bytes()), (WEIGHTS_PART, bytes(2 << 20)))

    async def cut() -> AsyncIterator[bytes]:
        yield body[: 1 << 20]
        raise BadRequest("gone")

    with pytest.raises(ApiError, match="gone"):
        await room.intake.take(Upload(tenant, ACTOR, "cut"), Body("xyz", cut()))
    assert room.kept() == []


async def test_a_deleted_adapter_resolves_no_more_and_its_bytes_stay_for_a_while(
    room: Room, tenant: TenantId, small: Path
) -> None:
    artefact = (await room.upload(tenant, "one", small)).version.artefact
    await room.upload(tenant, "two", small)
    who = principal(tenant, 9)
    await room.lifecycle.retire(who, ACTOR, "one", None)
    assert (len(room.kept()), room.hints.retired) == (1, [])  # `two` has the same content
    with pytest.raises(ModelNotFound):
        await room.catalog.resolve(who, "one")
    await room.lifecycle.retire(who, ACTOR, "two", 1)
    assert len(room.kept()) == 1
    assert room.hints.retired == [artefact]
    with pytest.raises(NotFound):
        await room.lifecycle.retire(who, ACTOR, "two", 1)
    assert (await room.upload(tenant, "one", small)).version.number == 2  # under a new number


async def test_another_tenants_adapter_is_as_unknown_as_none(
    room: Room, new_tenant: Callable[[], Awaitable[TenantId]], small: Path
) -> None:
    mine, other_tenant = await new_tenant(), await new_tenant()
    await room.upload(mine, "pirate", small)
    stranger = principal(other_tenant, 1)
    for model in ("pirate", "pirate@1", "nothing", "acme/pirate", "../pirate", room.base.name + "@1"):
        with pytest.raises(ModelNotFound) as caught:
            await room.catalog.resolve(stranger, model)
        assert caught.value.message == f"The model '{model}' does not exist or you do not have access to it."
    with pytest.raises(NotFound):
        await room.lifecycle.retire(stranger, ACTOR, "pirate", None)
    assert [m.id for m in await room.catalog.list_models(stranger)] == [room.base.name]
    assert [m.id for m in await room.catalog.list_models(principal(mine, 2))] == [room.base.name, "pirate"]


async def test_allowed_models_bound_what_a_key_sees_uses_and_deletes(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    await room.upload(tenant, "a", small)
    await room.upload(tenant, "b", other)
    only_a = principal(tenant, 5, frozenset({"a"}))
    assert [m.id for m in await room.catalog.list_models(only_a)] == ["a"]
    assert [row.adapter.name for row in await room.lifecycle.list_adapters(only_a, "", 10)] == ["a"]
    for model in ("b", room.base.name):
        with pytest.raises(ModelNotFound):
            await room.catalog.resolve(only_a, model)
    with pytest.raises(NotFound):
        await room.lifecycle.retire(only_a, ACTOR, "b", None)


async def test_a_tenant_does_not_fill_the_store_of_all(
    room: Room, small: Path, other: Path, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, neighbour = await new_tenant(), await new_tenant()
    await room.upload(mine, "a", small)
    kept = room.kept()
    room.intake.room.allowance = Allowance(versions=1)
    with pytest.raises(Conflict) as refused:
        await room.upload(mine, "b", other)
    assert refused.value.code == "too_many_versions"
    assert room.kept() == kept
    assert not (await room.upload(mine, "a", small)).created  # what is there already is no version more
    await room.lifecycle.retire(principal(mine, 1), ACTOR, "a", None)
    with pytest.raises(Conflict):  # it can be restored still, so it counts
        await room.upload(mine, "b", other)
    room.intake.room.allowance = Allowance(versions=2)
    assert (await room.upload(mine, "b", other)).created
    assert (await room.upload(neighbour, "a", small)).created
