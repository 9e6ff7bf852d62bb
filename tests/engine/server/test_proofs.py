"""Proofs of adapters on a real replica, by the real model: sound ones pass, and each fault has its check."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from adapters.disk_cache import cached_file
from tests.engine.server.altered_adapters import (
    Change,
    Workshop,
    larger_scale,
    missing_module,
    swapped_layers,
    times,
    transposed_site,
)
from tests.engine.server.running_engine import OWNER, EngineServer, wait_for

OTHER = "019360a0-0000-7000-8000-000000000002"


def prove(server: EngineServer, artefact: str, *, owner: str = OWNER, **more: Any) -> httpx.Response:
    order = {"artefact": artefact, "owner": owner, **more}
    return httpx.post(f"{server.url}/internal/proofs", json=order, headers=server.headers, timeout=120)


def checks_of(answer: httpx.Response) -> dict[str, dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["passed"] == all(check["passed"] for check in report["checks"])
    return {check["name"]: check for check in report["checks"]}


def failed(answer: httpx.Response) -> list[str]:
    return [name for name, check in checks_of(answer).items() if not check["passed"]]


@pytest.fixture(scope="module")
def workshop(
    demo_model_dir: Path, adapter_store: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"), demo_model_dir, adapter_store[0])


def test_sound_adapters_pass_and_bill_nobody(engine_server: EngineServer) -> None:
    before = len(engine_server.journal())
    first = prove(engine_server, engine_server.artefacts["pirate"])
    assert list(checks_of(first)) == ["loads", "differs", "dense", "finite", "finite_longest"]
    assert first.json()["passed"]
    second = prove(engine_server, engine_server.artefacts["shout"])
    assert list(checks_of(second)) == ["loads", "differs", "dense", "finite"], "the longest once a rank class"
    again = prove(engine_server, engine_server.artefacts["pirate"], longest=True)
    assert list(checks_of(again))[-1] == "finite_longest"
    for name in ("differs", "dense"):
        assert checks_of(again)[name] == checks_of(first)[name], "figures are of the adapter, not of the day"
    assert 0 < second.json()["replica_ms"] < second.json()["total_ms"]
    lines = engine_server.journal()[before:]
    assert {(line["purpose"], line["service_class"], line["key"]) for line in lines} == {
        ("proof", "batch", "")
    }
    assert {line["tenant"] for line in lines} == {OWNER, ""}, "the base's side is nobody's"


def test_what_changes_nothing_is_refused(engine_server: EngineServer, workshop: Workshop) -> None:
    """Past the static proof: no value is zero."""
    report = prove(engine_server, workshop.stored(times(1.0, 1e-9)))
    assert failed(report) == ["differs"]
    assert checks_of(report)["differs"]["figure"] < checks_of(report)["differs"]["bound"]


@pytest.mark.parametrize("change", [larger_scale, swapped_layers, transposed_site, missing_module])
def test_what_is_not_served_as_it_is_meant_is_found(
    engine_server: EngineServer, workshop: Workshop, change: Change
) -> None:
    """The engine holds the sound adapter; on its disk, and so to the dense twin, lies the altered one."""
    artefact = engine_server.artefacts["pirate"]
    assert failed(prove(engine_server, artefact)) == []
    held = cached_file(engine_server.folder / "cache", OWNER, artefact)
    sound = held.read_bytes()
    try:
        workshop.packed(change, artefact=artefact).replace(held)
        assert failed(prove(engine_server, artefact)) == ["dense"]
    finally:
        held.write_bytes(sound)


def test_values_that_overflow_are_a_verdict_and_hurt_nobody(
    engine_server: EngineServer, workshop: Workshop
) -> None:
    def answer() -> Any:
        body = {"model": "m", "prompt": "Once upon a", "max_tokens": 8, "temperature": 0}
        given = httpx.post(f"{engine_server.url}/v1/completions", json=body, headers=engine_server.headers)
        return given.json()["choices"][0]["text"]

    before = answer()
    assert failed(prove(engine_server, workshop.stored(times(1e20, 1e20)))) == ["finite"]
    odd = checks_of(prove(engine_server, workshop.stored(times(2.0**60, 2.0**-60))))
    assert odd["finite"]["passed"], "its product is that of any other"
    assert "512 tokens" in odd["finite"]["message"], "where norms can't say, it is computed"
    assert answer() == before


def test_without_a_verdict_it_is_503(engine_server: EngineServer, workshop: Workshop) -> None:
    absent = prove(engine_server, "0" * 64)
    assert (absent.status_code, absent.json()["code"]) == (503, "adapter_unavailable")
    assert absent.headers["content-type"] == "application/problem+json"
    foreign = workshop.stored(times(1.0, 0.5), base_id="f" * 64)
    assert failed(prove(engine_server, foreign)) == ["loads"], "another base's is the adapter's own fault"
    for bad in ({"artefact": "x"}, {"owner": "../x"}):
        assert prove(engine_server, **({"artefact": "0" * 64} | bad)).status_code == 400


def test_one_proof_an_owner_and_none_for_a_client_that_left(engine_server: EngineServer) -> None:
    artefact = engine_server.artefacts["shout"]
    order = {"artefact": artefact, "owner": OWNER, "longest": True}
    with httpx.Client(timeout=60) as client:
        url = f"{engine_server.url}/internal/proofs"
        request = client.build_request("POST", url, json=order, headers=engine_server.headers)
        impatient = threading.Thread(target=_send_and_leave, args=(engine_server.url, order))
        impatient.start()
        wait_for(lambda: _open_requests(engine_server) > 0, 30)
        busy = client.send(request)
        assert (busy.status_code, busy.json()["code"]) == (503, "replica_busy")
        impatient.join()
    wait_for(lambda: _open_requests(engine_server) == 0, 30)
    wait_for(lambda: prove(engine_server, artefact).status_code == 200, 30)


def _open_requests(server: EngineServer) -> int:
    number: int = server.get("/internal/state?once=1").json()["open_requests"]
    return number


def _send_and_leave(url: str, order: dict[str, Any]) -> None:
    from tests.engine.server.running_engine import TOKEN

    with pytest.raises(httpx.TimeoutException):
        httpx.post(
            f"{url}/internal/proofs",
            json=order,
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=httpx.Timeout(30, read=1.0),
        )


def test_a_purge_leaves_nothing_and_says_what_holds_it(
    start_engine: Callable[..., EngineServer], workshop: Workshop
) -> None:
    server = start_engine(MOTET_ENGINE_PURGE_WAIT_S="600", MOTET_ENGINE_PROOF_LONGEST="asked")
    artefact = workshop.stored(times(1.0, 0.75))
    url, headers = f"{server.url}/internal/adapters/{artefact}", server.headers
    assert httpx.get(url, headers=headers).status_code == 404
    assert httpx.put(url, json={"owner": OWNER}, headers=headers, timeout=60).status_code == 200
    body = {"model": "m", "prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}
    using = headers | {"x-motet-artefact": artefact, "x-motet-owner": OWNER}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, headers=using) as stream:
        chunks = stream.iter_raw()
        next(chunks)
        held = httpx.get(url, headers=headers).json()
        assert held == {"artefact": artefact, "device": True, "host": True, "disk": True, "requests": 1}
        at_once: dict[str, str | int] = {"purge": 1, "owner": OWNER, "within_ms": 500}
        refused = httpx.delete(url, params=at_once, headers=headers, timeout=60)
        assert (refused.status_code, refused.json()["code"]) == (409, "adapter_in_use")
    wait_for(lambda: _open_requests(server) == 0, 30)
    assert httpx.put(url, json={"owner": OWNER}, headers=headers, timeout=60).status_code == 200
    purged = httpx.delete(f"{url}?purge=1&owner={OWNER}", headers=headers, timeout=60)
    assert (purged.status_code, purged.json()) == (200, {"artefact": artefact, "purged": True})
    assert httpx.get(url, headers=headers).status_code == 404
    assert list((server.folder / "cache").glob(f"*{artefact}*")) == []
    assert httpx.delete(f"{url}?purge=1&owner={OWNER}", headers=headers, timeout=60).status_code == 200
    _ends_without_a_verdict(server)


@pytest.mark.parametrize("moment", ["requests", "dense"])
def test_a_core_that_ends_within_a_proof_is_told_from_one_that_had_ended(
    start_engine: Callable[..., EngineServer], moment: str
) -> None:
    """It may be the adapter's doing, so whoever asked must not ask the next replica at once."""
    server = start_engine()
    answers: list[httpx.Response] = []
    artefact = server.artefacts["pirate"]
    proof = threading.Thread(target=lambda: answers.append(prove(server, artefact, longest=True)))
    proof.start()
    if moment == "requests":
        wait_for(lambda: _open_requests(server) > 0, 30)
    else:  # the proof waits for its dense child, and for nothing of the core
        wait_for(lambda: _dense_child(server), 60).suspend()
    os.kill(server.core_pid, signal.SIGKILL)
    proof.join(30)
    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "core_lost")
    assert server.process.wait(30) != 0


def _dense_child(server: EngineServer) -> psutil.Process | None:
    children = psutil.Process(server.process.pid).children()
    return next((each for each in children if "engine.dense_process" in each.cmdline()), None)


def _ends_without_a_verdict(server: EngineServer) -> None:
    """A replica that leaves ends its proofs at once."""
    answers: list[httpx.Response] = []
    artefact = server.artefacts["pirate"]
    proof = threading.Thread(target=lambda: answers.append(prove(server, artefact, longest=True)))
    proof.start()
    wait_for(lambda: _open_requests(server) > 0, 30)
    server.process.terminate()
    began = time.monotonic()
    proof.join(30)
    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "replica_draining")
    assert server.process.wait(30) == 0
    assert time.monotonic() - began < 20
