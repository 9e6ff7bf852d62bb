"""From a stored version to one that answers, or never will: what a verdict changes, and what none changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy import select, update

from gateway.catalog.lifecycle import Shelf
from gateway.catalog.parts import ACCEPTANCE_PART
from gateway.errors import Conflict, ModelNotFound
from gateway.models import AuditEvent, ProofTask, Tenant, WebhookEvent
from gateway.principal import Principal, TenantId
from gateway.proofs import repository
from gateway.proofs.conclusion import Outcome
from gateway.proofs.proving import BROKEN_PAUSE_S, LEASE
from gateway.proofs.repository import TaskKey
from gateway.proofs.schemas import ProofOut
from gateway.proofs.sweeping import Sweep
from gateway.store_checks.fsck import Fsck
from tests.gateway.catalog.test_intake import ACTOR, Room, principal
from tests.gateway.inference.conftest import until

ALWAYS = timedelta(0)


async def epoch_of(room: Room, tenant: TenantId) -> int:
    async with room.database.system_reader() as session:
        return (await session.get_one(Tenant, tenant)).epoch


async def who(room: Room, tenant: TenantId) -> Principal:
    return principal(tenant, await epoch_of(room, tenant))


async def told(room: Room, tenant: TenantId) -> list[tuple[int | None, str]]:
    """(version, state) of webhook events, in order."""
    async with room.database.system_reader() as session:
        query = select(WebhookEvent.data).where(WebhookEvent.tenant_id == tenant).order_by(WebhookEvent.id)
        return [(data["version"], data["state"]) for data in await session.scalars(query)]


async def audited(room: Room, tenant: TenantId) -> list[str]:
    async with room.database.system_reader() as session:
        query = select(AuditEvent.action).where(AuditEvent.tenant_id == tenant).order_by(AuditEvent.id)
        return list(await session.scalars(query))


async def report(room: Room, tenant: TenantId, name: str, number: int) -> ProofOut:
    found = await room.proofs.report(await who(room, tenant), name, number)
    return msgspec.json.decode(msgspec.json.encode(ProofOut.of(found, "base")), type=ProofOut)


def sweep(room: Room) -> Sweep:
    async def look() -> int:
        await room.registry.poll_once()
        return room.registry.num_healthy

    return Sweep(room.database, room.prover, look)


async def swept(room: Room) -> int:
    """As control's leader does; all that it begins is over."""
    sweeper = sweep(room)
    begun = await sweeper.run_once()
    await until(lambda: not sweeper._running, within_s=20)
    return begun


async def make_due(room: Room, *, lapse: bool = False) -> None:
    """All tasks, now; with `lapse` those that are held, too."""
    values: dict[str, Any] = {"not_before": ProofTask.created_at}
    if lapse:
        values["held_until"] = ProofTask.created_at
    async with room.database.system_session() as session:
        await session.execute(update(ProofTask).values(**values))


async def test_a_version_answers_once_it_is_proved_and_not_before(
    room: Room, tenant: TenantId, small: Path
) -> None:
    gate = room.replica.proof_gate = asyncio.Event()
    before = await epoch_of(room, tenant)
    uploading = asyncio.create_task(room.upload(tenant, "pirate", small))
    await until(lambda: room.replica.proofs, within_s=20)
    page = await room.lifecycle.get_version(await who(room, tenant), "pirate", 1)
    assert (page.versions[0].state, page.adapter.aliases) == ("proving", {})
    for model in ("pirate", "pirate@1", "pirate@live"):
        with pytest.raises(ModelNotFound):
            await room.catalog.resolve(await who(room, tenant), model)
    assert await epoch_of(room, tenant) == before
    gate.set()
    stored = await uploading
    assert (stored.version.state, stored.adapter.aliases) == ("ready", {"live": 1})
    assert room.replica.proofs == [(stored.version.artefact, str(tenant), False)]
    assert await epoch_of(room, tenant) == before + 1
    assert (await room.catalog.resolve(await who(room, tenant), "pirate")).version_label == "pirate@1"
    assert await told(room, tenant) == [(1, "ready")]
    assert await audited(room, tenant) == ["adapter.upload", "adapter.ready"]


async def test_the_report_has_what_the_files_and_the_replica_say(
    room: Room, tenant: TenantId, small: Path
) -> None:
    stored = await room.upload(tenant, "pirate", small)
    told = await report(room, tenant, "pirate", 1)
    assert told.facts is not None
    assert [file.name for file in told.facts.files] == ["adapter_config.json", "adapter_model.safetensors"]
    assert (told.facts.matched, told.facts.unmatched, len(told.facts.untouched)) == ({"q_proj": 2}, [], 6)
    tiers = told.facts.bytes_by_tier
    assert (tiers.store, tiers.device) == (stored.version.num_bytes, 2 * told.facts.num_parameters)
    assert [(module.layer, module.site, module.rank) for module in told.facts.modules] == [
        (0, "q_proj", 2),
        (3, "q_proj", 2),
    ]
    for module in told.facts.modules:
        assert module.delta_bound == pytest.approx(abs(module.scale) * module.a_norm * module.b_norm)
        assert module.delta_bound > 0
    (proof,) = told.proofs
    assert (proof.passed, proof.base_digest, proof.load_ms, proof.tier) == (True, "d" * 64, 3.5, "store")
    assert [(check.name, check.passed) for check in proof.checks] == [("loads", True)]
    assert (told.state, told.waiting, told.reason) == ("ready", [], None)


async def test_a_rejected_version_never_answers_and_keeps_no_bytes(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    await room.upload(tenant, "pirate", other)
    kept = room.kept()
    room.replica.proof_failure = ("differs", "it answers as the base does")
    stored = await room.upload(tenant, "pirate", small)
    assert (stored.version.state, stored.version.reason) == (
        "rejected",
        "differs: it answers as the base does",
    )
    assert stored.adapter.aliases == {"live": 1}
    assert room.kept() == kept
    assert room.hints.retired == [stored.version.artefact]
    with pytest.raises(ModelNotFound):
        await room.catalog.resolve(await who(room, tenant), "pirate@2")
    told_of = await report(room, tenant, "pirate", 2)
    assert (told_of.proofs[0].passed, told_of.proofs[0].reason) == (False, stored.version.reason)
    assert await told(room, tenant) == [(1, "ready"), (2, "rejected")]
    fsck = Fsck(room.database, Shelf(room.database, room.store, room.hints), orphan_age_s=0)
    assert (await fsck.remove_orphans(), room.kept()) == (0, kept)
    again = await room.upload(tenant, "pirate", small)
    assert (again.created, again.version.number, again.version.state) == (False, 2, "rejected")
    with pytest.raises(Conflict, match="upload it again"):
        await room.proofs.ask_again(await who(room, tenant), ACTOR, "pirate", 2, longest=False)


async def test_no_replica_is_no_verdict(room: Room, tenant: TenantId, small: Path) -> None:
    (replica,) = room.registry.all
    room.registry.set_replicas([])
    stored = await room.upload(tenant, "pirate", small)
    assert (stored.version.state, stored.adapter.aliases) == ("uploaded", {})
    (waiting,) = (await report(room, tenant, "pirate", 1)).waiting
    assert (waiting.running, waiting.tries, waiting.reason) == (False, 1, "no_replica")
    await make_due(room)
    assert await swept(room) == 0  # control leaves it alone, too, while there is none
    room.registry.set_replicas([replica])
    assert await swept(room) == 1
    page = await room.lifecycle.get_version(await who(room, tenant), "pirate", 1)
    assert (page.versions[0].state, page.adapter.aliases) == ("ready", {"live": 1})


async def test_a_busy_replica_is_asked_again(room: Room, tenant: TenantId, small: Path) -> None:
    room.replica.busy_proofs = 2
    assert (await room.upload(tenant, "pirate", small)).version.state == "ready"
    assert len(room.replica.proofs) == 3


async def test_what_a_prover_left_behind_is_taken_up_once_its_lease_ran_out(
    room: Room, tenant: TenantId, small: Path
) -> None:
    room.replica.proof_gate = asyncio.Event()
    uploading = asyncio.create_task(room.upload(tenant, "pirate", small))
    await until(lambda: room.replica.proofs, within_s=20)
    version = (await room.lifecycle.get_version(await who(room, tenant), "pirate", 1)).versions[0]
    key = TaskKey(tenant, version.id)
    assert await room.prover.prove(key) is Outcome.LOST  # another is at it
    await make_due(room)
    assert await swept(room) == 0
    await make_due(room, lapse=True)  # as if it had been killed
    gate, room.replica.proof_gate = room.replica.proof_gate, None
    assert await swept(room) == 1
    gate.set()
    assert (await uploading).version.state == "ready"
    assert await told(room, tenant) == [(1, "ready")]  # two provers, one conclusion


async def test_a_process_that_stops_lets_go_at_once(room: Room, tenant: TenantId, small: Path) -> None:
    room.replica.proof_gate = asyncio.Event()
    uploading = asyncio.create_task(room.upload(tenant, "pirate", small))
    await until(lambda: room.replica.proofs, within_s=20)
    await room.proofs.close()
    assert (await uploading).version.state == "uploaded"
    room.replica.proof_gate = None
    assert await swept(room) == 1
    assert (await report(room, tenant, "pirate", 1)).state == "ready"


async def test_the_later_of_two_uploads_has_the_alias(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    gate = room.replica.proof_gate = asyncio.Event()
    first = asyncio.create_task(room.upload(tenant, "pirate", small))
    await until(lambda: room.replica.proofs, within_s=20)
    room.replica.proof_gate = None
    assert (await room.upload(tenant, "pirate", other)).adapter.aliases == {"live": 2}
    gate.set()
    done = await first
    assert (done.version.number, done.version.state, done.adapter.aliases) == (1, "ready", {"live": 2})


async def test_an_upload_names_its_alias_or_none(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    assert (await room.upload(tenant, "pirate", small, alias=None)).adapter.aliases == {}
    assert (await room.upload(tenant, "pirate", other, alias="next")).adapter.aliases == {"next": 2}


async def test_a_later_proof_takes_a_version_out_of_traffic_and_brings_it_back(
    room: Room, tenant: TenantId, small: Path
) -> None:
    await room.upload(tenant, "pirate", small)
    kept, me = room.kept(), await who(room, tenant)
    room.replica.proof_failure = ("finite_longest", "NaN at token 8000")
    asked = await room.proofs.ask_again(me, ACTOR, "pirate", 1, longest=True)
    assert (asked.version.state, len(asked.tasks)) == ("ready", 1)  # it answers meanwhile
    assert await swept(room) == 1
    assert room.replica.proofs[-1][2] is True
    with pytest.raises(ModelNotFound):
        await room.catalog.resolve(await who(room, tenant), "pirate")
    assert room.kept() == kept
    room.replica.proof_failure = None
    await room.proofs.ask_again(me, ACTOR, "pirate", 1, longest=False)
    assert await swept(room) == 1
    assert (await room.catalog.resolve(await who(room, tenant), "pirate")).version_label == "pirate@1"
    states = [(1, "ready"), (1, "rejected"), (1, "ready")]
    assert await told(room, tenant) == states


async def test_a_retired_version_is_proved_no_more(room: Room, tenant: TenantId, small: Path) -> None:
    room.registry.set_replicas([])
    await room.upload(tenant, "pirate", small)
    await room.lifecycle.retire(await who(room, tenant), ACTOR, "pirate", 1)
    await make_due(room)
    async with room.database.system_reader() as session:
        (key,) = [
            each for each in await repository.due(session, room.base.base_id, 100) if each.tenant == tenant
        ]
    assert await room.prover.prove(key) is Outcome.LOST
    async with room.database.tenant_reader(tenant) as session:
        assert await repository.tasks_of(session, key.version_id) == []


PROMPTS = [
    {"input": "Say hello.", "must_match": "^Hé(llo)? .界"},
    {"input": [{"role": "user", "content": "Again."}], "answer": " Héllo 世界! "},
    {"input": "Anything.", "must_match": "goodbye"},
]


async def test_acceptance_prompts_gate_readiness(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    asked = (ACCEPTANCE_PART, msgspec.json.encode({"prompts": PROMPTS, "minimum_share": 0.6}))
    assert (await room.upload(tenant, "pirate", small, asked)).version.state == "ready"
    strict = (ACCEPTANCE_PART, msgspec.json.encode(PROMPTS))
    stored = await room.upload(tenant, "pirate", other, strict)
    assert stored.version.state == "rejected"
    assert stored.version.reason == "acceptance: 2 of 3 prompts were answered as asked; 100% have to be"
    result = (await report(room, tenant, "pirate", 2)).proofs[0].acceptance
    assert result is not None
    assert [(each.passed, each.text) for each in result.answers] == [
        (True, "Héllo 世界!"),
        (True, "Héllo 世界!"),
        (False, "Héllo 世界!"),
    ]
    assert len(room.replica.seen) == 2 * len(PROMPTS)
    for seen in room.replica.seen.values():
        named = seen.headers
        assert (named["x-motet-purpose"], named["x-motet-class"]) == ("proof", "batch")
        assert named["x-motet-owner"] == named["x-motet-tenant"] == str(tenant)
        assert msgspec.json.decode(seen.body)["temperature"] == 0


async def test_what_computes_to_no_number_is_an_answer_and_what_is_not_loaded_none(
    room: Room, tenant: TenantId, small: Path, other: Path
) -> None:
    script, asked = room.replica.script, (ACCEPTANCE_PART, msgspec.json.encode(PROMPTS[:1]))
    script.refuse = (503, {"message": "no number", "code": "adapter_unavailable"})
    script.outcome = "adapter_failed"
    assert (await room.upload(tenant, "pirate", small, asked)).version.state == "uploaded"
    script.outcome = "not_finite"
    stored = await room.upload(tenant, "pirate", other, asked)
    assert stored.version.state == "rejected"
    (proof,) = (await report(room, tenant, "pirate", 2)).proofs
    assert proof.acceptance is not None
    assert [each.text for each in proof.acceptance.answers] == ["no number"]


async def test_an_unanswered_prompt_is_no_verdict(room: Room, tenant: TenantId, small: Path) -> None:
    room.replica.script.fail_first = 1
    asked = (ACCEPTANCE_PART, msgspec.json.encode(PROMPTS[:1]))
    assert (await room.upload(tenant, "pirate", small, asked)).version.state == "uploaded"
    (waiting,) = (await report(room, tenant, "pirate", 1)).waiting
    assert waiting.reason == "replica_broke_off"
    await make_due(room)
    assert await swept(room) == 1
    assert (await report(room, tenant, "pirate", 1)).state == "ready"


@pytest.mark.parametrize("within", ["proof", "prompt"])
async def test_what_may_have_killed_a_core_is_asked_nowhere_for_a_minute(
    room: Room, tenant: TenantId, small: Path, within: str
) -> None:
    if within == "proof":
        room.replica.proof_loses_core = True
    else:
        room.replica.script.refuse = (500, {"message": "The engine failed.", "code": "server_error"})
        room.replica.script.outcome = "core_failed"
    asked = (ACCEPTANCE_PART, msgspec.json.encode(PROMPTS[:1]))
    assert (await room.upload(tenant, "pirate", small, asked)).version.state == "uploaded"
    (waiting,) = (await report(room, tenant, "pirate", 1)).waiting
    assert (waiting.reason, len(room.replica.proofs)) == ("replica_broke_off", 1)
    assert waiting.not_before > datetime.now(UTC) + timedelta(seconds=BROKEN_PAUSE_S / 2)
    assert await swept(room) == 0


async def test_tenants_take_turns(
    room: Room, new_tenant: Callable[[], Awaitable[TenantId]], small: Path, other: Path
) -> None:
    room.registry.set_replicas([])
    crowd, quiet = await new_tenant(), await new_tenant()
    for name in ("a", "b", "c"):
        await room.upload(crowd, name, small)
    await room.upload(quiet, "a", other)
    await make_due(room)
    async with room.database.system_reader() as session:
        due = await repository.due(session, room.base.base_id, 1_000)
    order = [key.tenant for key in due if key.tenant in (crowd, quiet)]
    assert order.index(quiet) <= 1
    assert len(order) == 4


async def test_a_lease_is_of_one_holder(room: Room, tenant: TenantId, small: Path) -> None:
    room.registry.set_replicas([])
    stored = await room.upload(tenant, "pirate", small)
    key, mine, theirs = TaskKey(tenant, stored.version.id), uuid4(), uuid4()
    async with room.database.tenant_session(tenant) as session:
        held = await repository.take(session, key, mine, LEASE)
        assert held is not None
        assert await repository.take(session, key, theirs, LEASE) is None
        assert await repository.take(session, key, mine, ALWAYS) is not None
    async with room.database.tenant_session(tenant) as session:
        assert await repository.take(session, key, theirs, LEASE) is not None  # it ran out
        assert not await repository.renew(session, held, LEASE)
        await repository.put_off(session, held, "late", LEASE, tried=True)
        assert [task.reason for task in await repository.tasks_of(session, key.version_id)] == ["no_replica"]
