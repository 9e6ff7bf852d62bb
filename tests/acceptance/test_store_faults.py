"""`motet up` over a real S3 server that is killed, and a gateway worker that is killed, at every request of
an upload and of a cold load; and a store that is wrong in other ways. After each: nothing lost, nothing
orphaned, the same engine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.conftest import Record, is_short
from tests.s3_proxy import Fault
from tests.store_rig import Rig, store_rig

HONEST = {201, 503}


@pytest.fixture
async def rig(demo_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with store_rig(demo_model_dir, tmp_path, monkeypatch, "--workers", "1") as made:
        yield made


async def test_store_faults(rig: Rig, record: Record) -> None:
    engine = rig.machine.cores()[0].pid
    figures: dict[str, object] = {}
    rig.proxy.begin()
    made = await rig.upload("dry", rig.parts())
    assert made is not None
    assert made.status_code == 201, made.text
    await asyncio.sleep(5)  # the prefetch after it
    steps = len(rig.proxy.seen)
    figures["requests of an upload and its load"] = ", ".join(
        f"{count} {method}" for method, count in Counter(e.split()[0] for e in rig.proxy.seen).items()
    )
    for victim, kill in (("the store", rig.s3.kill), ("a worker", lambda: _kill_worker(rig))):
        ended = Counter[str]()
        for step in range(1, steps + 1, 6 if is_short() else 1):
            for fault in (Fault(step, 1, before=kill), Fault(step, 1, after=kill)):
                ended[await _killed_while_uploading(rig, fault)] += 1
        figures[f"kill -9 of {victim} before and after each request of an upload"] = _told(ended)
    figures["kill -9 of the store at each request of a cold load"] = await _killed_while_loading(rig)
    for name, fault in (
        ("answers 500", Fault(status=500)),
        ("answers 403", Fault(status=403)),
        ("answers 507", Fault(status=507)),
        ("cuts every answer", Fault(cut=True)),
        ("is slow: 2 s a request", Fault(delay_s=2)),
    ):
        figures[f"the store {name}, an upload"] = await _wrong_while_uploading(rig, fault)
    assert rig.machine.cores()[0].pid == engine
    figures["engine restarts"] = 0
    found = await rig.check(repair=False)
    figures["at the end"] = f"{found.kept} artefacts kept, {found.stored} stored, {found.faults} faults"
    record.write(
        "`motet up` over SeaweedFS; the store, then the gateway's worker, is killed at each request that an "
        "upload makes to it, the store at each of a cold load too. After each a check reads all objects.",
        figures,
    )
    assert found.faults == 0


async def _killed_while_uploading(rig: Rig, fault: Fault) -> str:
    """Then the same upload again: it must succeed, and answer. Gives how the first one ended."""
    name, files = f"a{uuid4().hex[:12]}", rig.parts()
    rig.proxy.begin(fault)
    answer = await rig.upload(name, files)
    await rig.until_ready()
    if answer is None:
        ended = "connection broke"
    else:
        assert answer.status_code in HONEST, answer.text
        ended = "201" if answer.status_code == 201 else f"503 {answer.json()['error']['code']}"
    await rig.assert_whole(f"{name}: {fault}")
    again = await rig.until_taken(name, files)
    assert again["version"] == 1
    await rig.until_it_answers(name)
    return ended


async def _killed_while_loading(rig: Rig) -> str:
    name = "cold"
    artefact = (await rig.until_taken(name, rig.parts()))["artefact"]
    await rig.until_it_answers(name)
    await rig.make_cold(artefact)
    rig.proxy.begin()
    assert (await rig.ask(name)).status_code == 200
    ended = Counter[str]()
    for step in range(1, len(rig.proxy.seen) + 1, 3 if is_short() else 1):
        await rig.make_cold(artefact)
        rig.proxy.begin(Fault(first=step, times=1, before=rig.s3.kill))
        answer = await rig.ask(name)
        assert answer.status_code in (200, 503), answer.text
        ended["200" if answer.status_code == 200 else f"503 {answer.json()['error']['code']}"] += 1
        await rig.until_ready()
        await rig.until_it_answers(name)
    await rig.assert_whole("loads")
    return _told(ended)


async def _wrong_while_uploading(rig: Rig, fault: Fault) -> str:
    name, files = f"a{uuid4().hex[:12]}", rig.parts()
    rig.proxy.begin(fault)
    began = time.monotonic()
    answer = await rig.upload(name, files)
    took_s = time.monotonic() - began
    assert answer is not None
    assert answer.status_code in HONEST, answer.text
    rig.proxy.begin()
    found = await rig.assert_whole(name)
    await rig.until_taken(name, files)
    code = "201" if answer.status_code == 201 else f"503 {answer.json()['error']['code']}"
    left = f"{found.orphans} objects, {found.unfinished} unfinished puts"
    return f"{code} after {took_s:.0f} s; left behind: {left}"


def _kill_worker(rig: Rig) -> None:
    os.kill(rig.machine.workers()[0].pid, signal.SIGKILL)


def _told(ended: Counter[str]) -> str:
    return ", ".join(f"{count} of {how}" for how, count in sorted(ended.items()))
