"""What a gateway and an operator rely on: aborts, usage, the journal, admission, crashes, clear failures."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.core.plan import StepPlan
from engine.core.trace import read_trace
from engine.server.main import run
from tests.engine.server.running_engine import (
    BASE_NAME,
    MAX_RUNNING,
    OWNER,
    EngineServer,
    launch,
    read_events,
    settings_of,
    wait_for,
)

LONG: dict[str, Any] = {
    "model": "m",
    "prompt": "Count: 1 2 3",
    "max_tokens": 900,
    "ignore_eos": True,
    "temperature": 0,
}


def request_id(number: int) -> str:
    return f"0190bbbb-0000-7000-8000-{number:012d}"


@contextmanager
def open_stream(server: EngineServer, number: int, **extra: Any) -> Iterator[Iterator[bytes]]:
    """A long stream, of which the first bytes have come."""
    headers = server.headers | {"x-motet-request": request_id(number), "x-motet-tenant": "t-1"}
    body = LONG | {"stream": True} | extra
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", f"{server.url}/v1/completions", json=body, headers=headers) as response,
    ):
        assert response.status_code == 200
        chunks = response.iter_raw()
        next(chunks)
        yield chunks


def abort(server: EngineServer, number: int, attempt: int | None = 1) -> httpx.Response:
    query = "" if attempt is None else f"?attempt={attempt}"
    url = f"{server.url}/internal/requests/{request_id(number)}/abort{query}"
    return httpx.post(url, headers=server.headers, timeout=30)


def state(server: EngineServer) -> dict[str, Any]:
    answer: dict[str, Any] = server.get("/internal/state?once=1").json()
    return answer


def is_idle(server: EngineServer) -> bool:
    now = state(server)
    return [now["open_requests"], now["stats"]["running"], now["stats"]["blocks_used"]] == [0, 0, 0]


def test_an_abort_answers_with_the_usage_that_the_journal_holds(engine_server: EngineServer) -> None:
    with open_stream(engine_server, 1) as chunks:
        answer = abort(engine_server, 1)
        rest = b"".join(chunks)
    assert answer.status_code == 200
    trailer = answer.json()
    line = engine_server.line_of(request_id(1))
    assert trailer["outcome"] == line["outcome"] == "aborted"
    assert trailer["usage"] == {name: line[name] for name in ("prompt", "completion", "cached")}
    assert trailer["usage"]["completion"] >= 1
    assert b"[DONE]" not in rest
    assert rest.rstrip().rsplit(b"\n\n", 1)[1] == b": motet " + answer.content
    assert abort(engine_server, 1, attempt=None).json() == trailer


def test_an_abort_of_nothing_is_404_and_keeps_the_attempt_out(engine_server: EngineServer) -> None:
    assert abort(engine_server, 2).status_code == 404
    headers = engine_server.headers | {"x-motet-request": request_id(2), "x-motet-attempt": "1"}
    late = httpx.post(f"{engine_server.url}/v1/completions", json=LONG, headers=headers)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "conflict")
    assert all(line["request"] != request_id(2) for line in engine_server.journal())


def test_a_client_that_leaves_frees_everything(engine_server: EngineServer) -> None:
    with open_stream(engine_server, 3):
        pass
    assert engine_server.line_of(request_id(3))["outcome"] == "aborted"
    wait_for(lambda: is_idle(engine_server), 10)
    line, trailer = engine_server.line_of(request_id(3)), abort(engine_server, 3).json()
    assert trailer["usage"]["completion"] == line["completion"]


def test_a_finished_stream_ends_with_its_usage(engine_server: EngineServer) -> None:
    with open_stream(engine_server, 4, max_tokens=5) as chunks:
        done, trailer = b"".join(chunks).rstrip().split(b"\n\n")[-2:]
    assert done == b"data: [DONE]"
    line = engine_server.line_of(request_id(4))
    told = json.loads(trailer.removeprefix(b": motet "))
    assert told["outcome"] == line["outcome"] == "finished"
    assert told["usage"]["completion"] == line["completion"] == 5
    assert line["tenant"] == "t-1"


def test_the_gateways_cap_only_lowers(engine_server: EngineServer) -> None:
    headers = engine_server.headers | {"x-motet-max-tokens": "3"}
    answer = httpx.post(f"{engine_server.url}/v1/completions", json=LONG, headers=headers, timeout=30)
    assert answer.json()["usage"]["completion_tokens"] == 3
    body = LONG | {"max_tokens": 2}
    answer = httpx.post(f"{engine_server.url}/v1/completions", json=body, headers=headers, timeout=30)
    assert answer.json()["usage"]["completion_tokens"] == 2


def test_over_the_running_limit_and_a_quarter_is_busy(engine_server: EngineServer) -> None:
    limit = state(engine_server)["open_limit"]
    assert limit == MAX_RUNNING + MAX_RUNNING // 4
    left = threading.Event()

    def hold(number: int) -> None:
        with open_stream(engine_server, number):
            left.wait(30)

    holders = [threading.Thread(target=hold, args=(100 + n,)) for n in range(limit)]
    for holder in holders:
        holder.start()
    try:
        wait_for(lambda: state(engine_server)["open_requests"] == limit, 20)
        answer = httpx.post(f"{engine_server.url}/v1/completions", json=LONG, headers=engine_server.headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replica_busy")
        assert answer.headers["retry-after"] == "1"
        assert engine_server.get("/readyz").status_code == 200
        for number in range(limit):
            abort(engine_server, 100 + number)
    finally:
        left.set()
        for holder in holders:
            holder.join()
    wait_for(lambda: is_idle(engine_server), 10)


def test_a_deadline_that_passes_is_504(engine_server: EngineServer) -> None:
    headers = engine_server.headers | {"x-motet-deadline-ms": "1"}
    body = LONG | {"prompt": "word " * 900, "max_tokens": 1}
    answer = httpx.post(f"{engine_server.url}/v1/completions", json=body, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


def test_adapters_by_the_control_api(engine_server: EngineServer) -> None:
    artefact = engine_server.artefacts["shout"]
    url, headers = f"{engine_server.url}/internal/adapters", engine_server.headers
    put = httpx.put(f"{url}/{artefact}", json={"owner": OWNER}, headers=headers, timeout=30)
    assert (put.status_code, put.json()["artefact"]) == (200, artefact)
    wait_for(lambda: artefact in state(engine_server)["stats"]["host"], 5)
    probe = httpx.post(
        f"{engine_server.url}/internal/probe",
        json={"artefact": artefact, "owner": OWNER},
        headers=headers,
        timeout=30,
    )
    assert probe.json()["usage"]["completion"] == 1
    assert httpx.delete(f"{url}/{artefact}", headers=headers).status_code == 202
    wait_for(lambda: artefact not in state(engine_server)["stats"]["host"], 5)
    hint = httpx.post(
        f"{url}/{artefact}/prefetch", json={"owner": OWNER, "within_ms": 10_000}, headers=headers
    )
    assert hint.status_code == 202
    wait_for(lambda: artefact in state(engine_server)["stats"]["host"], 10)
    kept = {"owner": OWNER, "keep_ms": 60_000, "on_device": True}
    httpx.delete(f"{url}/{artefact}", headers=headers)
    assert httpx.post(f"{url}/{artefact}/prefetch", json=kept, headers=headers).status_code == 202
    wait_for(lambda: artefact in state(engine_server)["stats"]["device"], 10)
    missing = httpx.put(f"{url}/{'0' * 64}", json={"owner": OWNER}, headers=headers, timeout=30)
    assert (missing.status_code, missing.json()["code"]) == (503, "adapter_unavailable")


@pytest.mark.parametrize(("artefact", "owner"), [("../x", OWNER), ("a" * 64, "../../etc"), ("A" * 64, OWNER)])
def test_names_that_are_no_ids_reach_no_path(engine_server: EngineServer, artefact: str, owner: str) -> None:
    headers = engine_server.headers | {"x-motet-artefact": artefact, "x-motet-owner": owner}
    answer = httpx.post(f"{engine_server.url}/v1/completions", json=LONG, headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/internal/state"),
        ("GET", "/internal/journal"),
        ("POST", "/internal/probe"),
        ("POST", "/internal/requests/x/abort"),
        ("PUT", "/internal/adapters/x"),
        ("GET", "/nowhere"),
    ],
)
def test_every_route_but_healthz_needs_the_token(engine_server: EngineServer, method: str, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer wrong-token"}):
        assert httpx.request(method, engine_server.url + path, headers=headers).status_code == 401
    assert httpx.get(f"{engine_server.url}/healthz").text == "ok\n"


def test_metrics_have_vllms_names(engine_server: EngineServer) -> None:
    text = engine_server.get("/metrics").text
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:request_queue_time_seconds_bucket",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:num_preemptions_total",
        "motet_adapter_loads_total",
    ):
        assert f"\n{name}{{" in text


def test_the_state_stream_counts_up(engine_server: EngineServer) -> None:
    with httpx.stream(
        "GET", f"{engine_server.url}/internal/state", headers=engine_server.headers, timeout=10
    ) as response:
        lines = (line for line in response.iter_lines() if line.startswith(("id: ", "data: ")))
        pairs = [(next(lines), next(lines)) for _ in range(3)]
    states = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    numbers = [s["sequence"] for s in states]
    assert numbers == sorted(set(numbers))
    assert [f"id: {number}" for number in numbers] == [first for first, _ in pairs]
    assert states[0]["model"] == BASE_NAME
    stats = states[-1]["stats"]
    assert stats["blocks_free"] + stats["blocks_used"] + stats["blocks_cached"] == stats["blocks_total"]
    assert stats["adapters"]["host"]["budget_bytes"] > 0
    assert stats["queue"]["running_limit"] >= stats["queue"]["running"]


def test_a_core_that_hangs_gets_no_more_requests(start_engine: Callable[..., EngineServer]) -> None:
    server = start_engine(MOTET_ENGINE_CORE_SILENCE_S="3")
    os.kill(server.core_pid, signal.SIGSTOP)
    try:
        stalled = wait_for(lambda: (r := server.get("/readyz")).status_code == 503 and r, 15)
        assert "does not answer" in stalled.text
        answer = httpx.post(f"{server.url}/v1/completions", json=LONG, headers=server.headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replica_stalled")
        assert server.get("/healthz").status_code == 200
    finally:
        os.kill(server.core_pid, signal.SIGCONT)
    wait_for(lambda: server.get("/readyz").status_code == 200, 15)


def test_a_killed_core_fails_open_requests_and_the_server(start_engine: Callable[..., EngineServer]) -> None:
    server = start_engine()
    with open_stream(server, 1) as chunks:
        os.kill(server.core_pid, signal.SIGKILL)
        rest = b"".join(chunks)
    assert server.process.wait(10) == 1
    error, trailer = rest.rstrip().split(b"\n\n")[-2:]
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "server_error"
    assert json.loads(trailer.removeprefix(b": motet "))["outcome"] == "core_failed"
    assert b"[DONE]" not in rest
    assert "motet engine: " in (server.folder / "log").read_text()


def test_a_core_that_hangs_is_ended_and_the_server_with_it(start_engine: Callable[..., EngineServer]) -> None:
    server = start_engine(MOTET_ENGINE_STALL_S="3")
    with open_stream(server, 1) as chunks:
        os.kill(server.core_pid, signal.SIGSTOP)
        rest = b"".join(chunks)
    assert json.loads(rest.rstrip().rpartition(b": motet ")[2])["outcome"] == "core_failed"
    assert b"[DONE]" not in rest
    assert server.process.wait(10) == 1


def test_a_journal_that_is_gone_is_a_503(start_engine: Callable[..., EngineServer]) -> None:
    server = start_engine()
    (server.folder / "journal").rename(server.folder / "elsewhere")
    assert server.get("/internal/journal").status_code == 503
    assert server.get("/readyz").status_code == 200
    (server.folder / "elsewhere").rename(server.folder / "journal")
    assert server.get("/internal/journal").status_code == 200


def test_sigterm_lets_running_requests_finish_and_the_trace_holds_all_their_steps(
    start_engine: Callable[..., EngineServer], tmp_path: Path
) -> None:
    server = start_engine(MOTET_ENGINE_TRACE_PLANS=str(tmp_path / "trace"))
    with open_stream(server, 1, max_tokens=30) as chunks:
        os.kill(server.core_pid, signal.SIGTERM)  # a supervisor may tell all processes of a service
        server.process.send_signal(signal.SIGTERM)
        rest = b"".join(chunks)
    assert rest.rstrip().split(b"\n\n")[-2] == b"data: [DONE]"
    assert server.process.wait(10) == 0
    plans = [entry for entry in read_trace(tmp_path / "trace") if isinstance(entry, StepPlan)]
    samples = [row.sample for plan in plans for row in plan.rows if row.sample is not None]
    assert [sample.counter for sample in samples] == list(range(30))


def test_sigkill_of_the_server_ends_the_core(start_engine: Callable[..., EngineServer]) -> None:
    server = start_engine()
    server.process.kill()
    wait_for(lambda: not command_line(server.core_pid), 5)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ends_while_its_core_loads_leaves_none(
    demo_model_dir: Path, tmp_path: Path, end: signal.Signals
) -> None:
    """A core that begins under another parent, or loads under none, would wait for its server for ever."""
    process = launch(settings_of(demo_model_dir, tmp_path, tmp_path), tmp_path)
    started = wait_for(lambda: [e for e in read_events(tmp_path / "log") if e["event"] == "core_started"])
    process.send_signal(end)
    process.wait(20)
    wait_for(lambda: not command_line(started[0]["pid"]), 30)  # it looks once its imports are done


def command_line(pid: int) -> bytes:
    """Empty for a process that has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"MOTET_ENGINE_TOKEN": None}, "motet engine: no token: set MOTET_ENGINE_TOKEN\n"),
        ({"MOTET_BASE_MODEL": None}, "motet engine: no model: set --model\n"),
        (
            {"MOTET_BASE_MODEL": "/nowhere"},
            "motet engine: /nowhere holds no model: there is no config.json in it\n",
        ),
        ({"MOTET_ENGINE_SLOTS": "0"}, "motet engine: slots: Input should be greater than or equal to 1\n"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    change: dict[str, str | None],
    line: str,
    demo_model_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in (settings_of(demo_model_dir, tmp_path, tmp_path) | change).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert run({}) == 1
    assert capfd.readouterr().err == line


def test_a_kv_cache_below_the_context_is_refused(demo_model_dir: Path, tmp_path: Path) -> None:
    few = {"MOTET_ENGINE_NUM_BLOCKS": "63"}  # of 16 tokens; the context is 1,024
    process = launch(settings_of(demo_model_dir, tmp_path, tmp_path) | few, tmp_path)
    assert process.wait(60) == 1
    said = (tmp_path / "log").read_text().splitlines()[-1]
    assert said.startswith(
        "motet engine: The engine core can't start: the KV cache holds 1008 tokens, less than"
    )
    assert "--max-model-len" in said


def test_a_port_in_use_is_said_in_one_line(demo_model_dir: Path, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        process = launch(settings_of(demo_model_dir, tmp_path, tmp_path), tmp_path, "--port", str(port))
        assert process.wait(30) == 1
    expected = f"motet engine: can't listen on 127.0.0.1:{port}: Address already in use\n"
    assert (tmp_path / "log").read_text() == expected
