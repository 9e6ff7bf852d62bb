"""`motet up` over a real S3 server, and kill -9 in the middle of a replica's proof: of the replica that
proves (its server, or its core), of the gateway's worker that drives the proof, of the store. After each the
version ends as it must by itself, once, and nothing else was restarted, lost or left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
from sqlalchemy import select

from gateway.catalog.parts import ACCEPTANCE_PART
from gateway.models import Adapter, AdapterVersion, AuditEvent, WebhookEvent
from tests.acceptance.conftest import Record, is_short, times
from tests.proof_moments import (
    LoadCatch,
    core_of,
    going_on,
    held_in_dense_check,
    replica_with_prompts,
    replicas_of,
)
from tests.running_platform import survivors
from tests.store_rig import READY_S, Rig, store_rig

JUDGED_S = 300.0  # a replica that broke off is asked again after a minute, then after two
REST_S = 90.0  # a lease of a killed worker runs out after sixty
FAINT = 1e-5  # values that change no answer
FIRST_LOAD, LAST_LOAD = "first request of its load", "last request of its load"
DENSE, PROMPTS = "dense check", "acceptance prompts"
SERVER, CORE, WORKER, STORE = "the replica's server", "the replica's core", "a worker", "the store"
MOMENTS, VICTIMS = (FIRST_LOAD, LAST_LOAD, DENSE, PROMPTS), (SERVER, CORE, WORKER, STORE)
NUM_LOADS = 3  # requests to the store


@dataclass(frozen=True)
class Case:
    """`sound`: the version must become ready; else it must be rejected."""

    moment: str
    victim: str
    sound: bool

    def __str__(self) -> str:
        return f"{self.victim}, {self.moment}, {'sound' if self.sound else 'not sound'}"


FULL = tuple(
    Case(moment, victim, sound) for moment in MOMENTS for victim in VICTIMS for sound in (True, False)
)
SHORT = (
    Case(FIRST_LOAD, WORKER, sound=True),
    Case(LAST_LOAD, STORE, sound=False),
    Case(DENSE, CORE, sound=False),
    Case(PROMPTS, SERVER, sound=True),
)


@pytest.fixture
async def rig(demo_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    more = ("--workers", "1", "--replicas", str(times(2, 1)))
    async with store_rig(demo_model_dir, tmp_path, monkeypatch, *more) as made:
        yield made


async def test_proof_faults(rig: Rig, record: Record) -> None:
    rig.proxy.begin()
    await rig.upload("dry", rig.parts())
    assert (await _until_judged(rig, "dry"))["state"] == "ready"
    assert sum(each.startswith("GET") for each in rig.proxy.seen) == NUM_LOADS, rig.proxy.seen
    figures: dict[str, object] = {}
    cases = SHORT if is_short() else FULL
    for victim, group in itertools.groupby(sorted(cases, key=lambda case: case.victim), lambda it: it.victim):
        ended = Counter([await _killed_while_proving(rig, case) for case in group])
        told = ", ".join(f"{count} of {how}" for how, count in sorted(ended.items()))
        figures[f"kill -9 of {victim}: what the upload heard, what became of it"] = told
    difference = await rig.machine.difference(REST_S)
    figures["kills"] = len(cases)
    figures["versions in the wrong state, doubled or waiting; other processes restarted"] = 0
    figures["ledger against journals"] = f"{difference.lines} lines, {len(difference.missing)} missing, " + (
        f"{len(difference.unequal)} unequal"
    )
    found = await rig.check(repair=False)
    figures["at the end"] = f"{found.kept} artefacts kept, {found.stored} stored, {found.faults} faults"
    record.write(
        "`motet up` (with two replicas) over SeaweedFS; one of its processes, or the store, is killed in the "
        "middle of a proof: at the first and the last request of the load, while the dense twin computes, "
        "while acceptance prompts run. Each once with an adapter that has to become ready and once with one "
        "that has to be rejected.",
        figures,
    )
    assert (difference.missing, difference.unequal, found.faults) == ([], [], 0)
    assert await rig.machine.billed_twice() == []


async def _killed_while_proving(rig: Rig, case: Case) -> str:
    """Gives what the upload heard and how the version ended."""
    name, files = f"a{uuid4().hex[:12]}", _files(rig, case)
    before, gone = replicas_of(rig.machine), list[psutil.Process]()

    def strike(replica: psutil.Process) -> None:
        if case.victim == STORE:
            rig.s3.kill()
            return
        if case.victim == WORKER:
            victim = rig.machine.workers()[0]
            gone.append(victim)
        else:
            core = core_of(rig.machine, replica)
            victim = core if case.victim == CORE else replica
            gone.extend((replica, core))
        os.kill(victim.pid, signal.SIGKILL)

    uploading = await _struck(rig, case, name, files, strike)
    if case.victim == STORE and case.moment in (FIRST_LOAD, LAST_LOAD):
        await asyncio.to_thread(rig.s3.start)
    report = await _until_judged(rig, name)
    heard = await uploading
    assert survivors(gone, REST_S) == []
    await rig.until_ready()
    await rig.machine.until_replicas_are_ready(READY_S)
    _assert_only_the_killed_restarted(before, replicas_of(rig.machine), gone)
    _assert_right(report, case)
    await _assert_once(rig, name, case, files)
    await rig.assert_whole(f"{name}: {case}")
    assert await rig.machine.held(REST_S) == []
    return f"{_told(heard)}, {report['state']}"


async def _struck(
    rig: Rig, case: Case, name: str, files: dict[str, bytes], strike: Callable[[psutil.Process], None]
) -> asyncio.Task[httpx.Response | None]:
    """The upload, at whose proof it was struck."""
    rig.proxy.begin()
    load = LoadCatch(rig.machine, rig.proxy, strike)
    if case.moment == FIRST_LOAD:
        load.arm(1, after=False)
    elif case.moment == LAST_LOAD:
        load.arm(NUM_LOADS, after=True)
    uploading = asyncio.create_task(rig.upload(name, files))
    if case.moment == DENSE:
        child = await held_in_dense_check(rig.machine)
        with going_on(child):
            assert await _state(rig, name) == "proving"
            strike(_parent(child))
    elif case.moment == PROMPTS:
        replica = await replica_with_prompts(rig.machine)
        assert await _state(rig, name) == "proving"
        strike(replica)
    else:
        await load.until_done()
    return uploading


def _parent(child: psutil.Process) -> psutil.Process:
    parent = child.parent()
    assert parent is not None
    return parent


def _files(rig: Rig, case: Case) -> dict[str, bytes]:
    """What has to be rejected differs in no answer, or answers other than it is asked to."""
    if case.moment != PROMPTS:
        return rig.parts() if case.sound else rig.parts(FAINT)
    wanted = {"must_match": "^"} if case.sound else {"answer": "This it never says. " * 20}
    prompts = [{"input": f"Say something long, number {number}.", **wanted} for number in range(6)]
    return rig.parts() | {ACCEPTANCE_PART: json.dumps(prompts).encode()}


async def _state(rig: Rig, name: str) -> str | None:
    async with rig.db.system_reader() as session:
        query = select(AdapterVersion.state).join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        return await session.scalar(query.where(Adapter.name == name))


async def _until_judged(rig: Rig, name: str) -> dict[str, Any]:
    """The report, as soon as it has a verdict; nobody does anything for that."""
    until, told = time.monotonic() + JUDGED_S, ""
    while time.monotonic() < until:
        async with rig.client as client:
            try:
                answer = await client.get(f"/v1/adapters/{name}/versions/1/proof")
            except httpx.HTTPError as error:
                told = repr(error)
            else:
                told = answer.text
                if answer.status_code == 200:
                    report: dict[str, Any] = answer.json()
                    if report["state"] in ("ready", "rejected"):
                        return report
        await asyncio.sleep(0.5)
    raise AssertionError(f"no verdict: {told}")


def _assert_only_the_killed_restarted(
    before: dict[int, int], after: dict[int, int], killed: list[psutil.Process]
) -> None:
    kept = {server: core for server, core in before.items() if server not in {each.pid for each in killed}}
    assert len(after) == len(before)
    assert kept.items() <= after.items(), (before, after, killed)


def _assert_right(report: dict[str, Any], case: Case) -> None:
    """Of one verdict, with all checks, and nothing that still waits."""
    assert report["state"] == ("ready" if case.sound else "rejected"), report
    assert report["waiting"] == []
    (proof,) = report["proofs"]
    assert proof["passed"] == case.sound
    checks = {check["name"]: check["passed"] for check in proof["checks"]}
    assert {"loads", "differs", "dense", "finite"} <= checks.keys()
    faint = not case.sound and case.moment != PROMPTS
    assert [name for name, passed in checks.items() if not passed] == (["differs"] if faint else [])
    assert str(report["reason"] or "").partition(":")[0] == (
        "" if case.sound else "differs" if faint else "acceptance"
    )
    if case.moment == PROMPTS:
        given = [answer["passed"] for answer in proof["acceptance"]["answers"]]
        assert given == ([True] * 6 if case.sound else [False] * 4)
    else:
        assert proof["acceptance"] is None


async def _assert_once(rig: Rig, name: str, case: Case, files: dict[str, bytes]) -> None:
    """One version, one conclusion, and it answers or it doesn't."""
    if case.sound:
        await rig.until_it_answers(name)
        assert (await rig.until_taken(name, files))["version"] == 1
    else:
        assert (await rig.ask(name)).status_code == 404
    async with rig.client as client:
        listed = (await client.get(f"/v1/adapters/{name}/versions")).json()["data"]
    state = "ready" if case.sound else "rejected"
    assert [(each["version"], each["state"]) for each in listed] == [(1, state)]
    async with rig.db.system_reader() as session:
        query = select(AuditEvent.action).where(AuditEvent.target == f"{name}@1").order_by(AuditEvent.id)
        audited = list(await session.scalars(query))
        events = await session.scalars(
            select(WebhookEvent.data["state"].astext).where(WebhookEvent.data["adapter"].astext == name)
        )
        assert list(events) == [state]
    assert audited == ["adapter.upload", "adapter.ready" if case.sound else "adapter.reject"]


def _told(heard: httpx.Response | None) -> str:
    if heard is None:
        return "connection broke"
    code = "" if heard.status_code < 300 else f" {heard.json()['error']['code']}"
    return f"{heard.status_code}{code}"
