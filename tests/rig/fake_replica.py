"""A fake replica, as a process of its own: `python -m tests.rig.fake_replica PORT …`, its token in
MOTET_ENGINE_TOKEN. It is no engine and computes nothing.

It speaks the engine's protocol (docs/ARCHITECTURE.md, seams: trailer, journal, abort) and takes a fixed
time a token in a fixed number of places, so that runs of thousands of requests say something about the
gateway before it, and about nothing else. What it counts:

    prompt       the token ids of a prompt that is given in ids, else 7 (less than any chat template takes)
    completion   `seed` where the body names one, which says how many; at most `max_tokens`, by default 8

Asked to load or keep an adapter, it has it at once, for as long as it isn't asked to forget it.
Asked to prove an adapter, it says that all is well, at once: it has looked at nothing.
`GET /fake/figures`: what it saw that no journal tells. `POST /fake/broken` `{"artefact", "outcome"}`: that
adapter's requests end so from here on (`failed`, `not_finite`), without a word; null: as all others do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import uvloop
from aiohttp import web

WORD = "otter-of-the-weir "  # each of its tokens
DEFAULT_TOKENS = 8
BASE_DIGEST = "fake" * 16


@dataclass(frozen=True)
class Behaviour:
    """`running` places, `frame_s` for each token, and of a thousand attempts `broken` end without an end."""

    token: str
    running: int
    frame_s: float
    broken: int = 0
    base_id: str | None = None  # that it says it holds


@dataclass(eq=False)
class Attempt:
    request: str
    number: int
    headers: dict[str, str]
    prompt: int
    wanted: int
    stream: bool
    arrived_at: float
    began_at: float | None = None  # had a place
    first_at: float | None = None  # its first token
    ended_at: float | None = None
    completion: int = 0
    outcome: str | None = None
    aborted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def trailer(self) -> dict[str, Any]:
        return {
            "usage": {"prompt": self.prompt, "completion": self.completion, "cached": 0},
            "timings": {
                "queue_ms": 0.0,
                "load_ms": 0.0,
                "ttft_ms": self._ms_to(self.first_at),
                "total_ms": self._ms_to(self.ended_at),
            },
            "tier": "base",
            "outcome": self.outcome,
            "reason": "",
        }

    def _ms_to(self, at: float | None) -> float:
        return 0.0 if at is None else (at - self.arrived_at) * 1000


class BrokenOff(Exception):
    """The connection is to die here."""


class FakeReplica:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.places = asyncio.Semaphore(behaviour.running)
        self.open = 0
        self.running = 0
        self.busy_s = 0.0  # places in use, summed over time
        self.changed_at = time.monotonic()
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.barred: set[tuple[str, int]] = set()  # aborted before they came: they cost nothing, as told
        self.journal: list[dict[str, Any]] = []
        self.device: set[str] = set()
        self.host: set[str] = set()
        self.sequence = 1
        self.journal_id = f"fake-{uuid4().hex}"
        self.at_a_time: dict[str, int] = defaultdict(int)
        self.most_at_a_time: dict[str, int] = defaultdict(int)
        self.releases: list[float] = []
        self.begun: list[tuple[str, str, float, float]] = []  # tenant, client's id, arrived, began
        self.broken: dict[str, str] = {}  # artefact → how its requests end

    def application(self) -> web.Application:
        app = web.Application(client_max_size=16 * 1024 * 1024, middlewares=[self._guard])
        app.router.add_post("/v1/chat/completions", self.generate)
        app.router.add_post("/v1/completions", self.generate)
        app.router.add_post("/internal/requests/{request}/abort", self.abort)
        app.router.add_post("/internal/proofs", self.prove)
        app.router.add_post("/internal/adapters/{artefact}/prefetch", self.hold)
        app.router.add_delete("/internal/adapters/{artefact}", self.forget)
        app.router.add_get("/internal/adapters/{artefact}", self.look_for)
        app.router.add_get("/internal/state", self.state)
        app.router.add_get("/internal/journal", self.read_journal)
        app.router.add_get("/readyz", _nothing)
        app.router.add_get("/fake/figures", self.figures)
        app.router.add_post("/fake/broken", self.break_artefact)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Bearer {self.behaviour.token}":
            return web.json_response({"detail": "the replica's token"}, status=401)
        return await handler(request)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if self.open >= self.behaviour.running * 1.25:
            error = {"message": "full", "type": "service_unavailable_error", "param": None}
            return web.json_response({"error": {**error, "code": "replica_busy"}}, status=503)
        if (request.headers["x-motet-request"], int(request.headers["x-motet-attempt"])) in self.barred:
            error = {"message": "aborted before", "type": "invalid_request_error", "param": None}
            return web.json_response({"error": {**error, "code": "conflict"}}, status=409)
        attempt = self._admit(request, body)
        try:
            if (outcome := self.broken.get(attempt.headers.get("x-motet-artefact", ""))) is not None:
                return self._ended_badly(attempt, outcome)
            if attempt.stream:
                return await self._streamed(request, attempt, body)
            return await self._whole(request, attempt, body)
        except BrokenOff:
            self._end(attempt, "aborted")
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        finally:  # also when the gateway's connection broke
            self._end(attempt, "aborted")
            self._leave(attempt)

    def _admit(self, request: web.Request, body: dict[str, Any]) -> Attempt:
        prompt, most = body.get("prompt"), body.get("max_tokens") or DEFAULT_TOKENS
        attempt = Attempt(
            request=request.headers["x-motet-request"],
            number=int(request.headers["x-motet-attempt"]),
            headers=dict(request.headers),
            prompt=len(prompt) if isinstance(prompt, list) else 7,
            wanted=min(most, body.get("seed") or most),
            stream=bool(body.get("stream")),
            arrived_at=time.time(),
        )
        name = (attempt.request, attempt.number)
        assert name not in self.attempts, f"{name} came twice"
        self.attempts[name] = attempt
        self.open += 1
        tenant = attempt.headers.get("x-motet-tenant", "")
        self.at_a_time[tenant] += 1
        self.most_at_a_time[tenant] = max(self.most_at_a_time[tenant], self.at_a_time[tenant])
        return attempt

    def _leave(self, attempt: Attempt) -> None:
        self.open -= 1
        self.at_a_time[attempt.headers.get("x-motet-tenant", "")] -= 1

    @asynccontextmanager
    async def _place(self, attempt: Attempt) -> Any:
        async with self.places:
            attempt.began_at = time.time()
            who = (attempt.headers.get("x-motet-tenant", ""), attempt.request)
            self.begun.append((*who, attempt.arrived_at, attempt.began_at))
            self._change(1)
            try:
                yield
            finally:
                self._change(-1)
                self.releases.append(time.time())

    def _change(self, by: int) -> None:
        now = time.monotonic()
        self.busy_s += self.running * (now - self.changed_at)
        self.running, self.changed_at = self.running + by, now

    async def _token(self, attempt: Attempt) -> bool:
        """One more token; False once it was aborted."""
        if self.behaviour.frame_s:
            await asyncio.sleep(self.behaviour.frame_s)
        if attempt.aborted.is_set():
            return False
        attempt.completion += 1
        attempt.first_at = attempt.first_at or time.time()
        lot = zlib.crc32(f"{attempt.request}{attempt.number}{attempt.completion}".encode())
        if self.behaviour.broken and lot % (1000 * attempt.wanted) < self.behaviour.broken:
            raise BrokenOff
        return True

    def _ended_badly(self, attempt: Attempt, outcome: str) -> web.Response:
        """As an engine says that its adapter is at fault."""
        self._end(attempt, outcome)
        error = {"message": outcome, "type": "server_error", "param": None, "code": "adapter_unavailable"}
        return web.json_response(
            {"error": error}, status=503, headers={"x-motet-trailer": json.dumps(attempt.trailer)}
        )

    async def _whole(self, _: web.Request, attempt: Attempt, body: dict[str, Any]) -> web.StreamResponse:
        async with self._place(attempt):
            while attempt.completion < attempt.wanted and await self._token(attempt):
                pass
        if attempt.aborted.is_set():
            error = {"message": "aborted", "type": "server_error", "param": None, "code": "aborted"}
            headers = {"x-motet-trailer": json.dumps(attempt.trailer)}
            return web.json_response({"error": error}, status=503, headers=headers)
        self._end(attempt, "finished")
        answer = {
            "id": f"chatcmpl-{attempt.request}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [_choice(0, WORD * attempt.completion, "length", whole=True)],
            "usage": _usage(attempt),
        }
        return web.json_response(answer, headers={"x-motet-trailer": json.dumps(attempt.trailer)})

    async def _streamed(
        self, request: web.Request, attempt: Attempt, body: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        head = {"id": f"chatcmpl-{attempt.request}", "object": "chat.completion.chunk", "created": 1}
        head["model"] = body["model"]
        async with self._place(attempt):
            while attempt.completion < attempt.wanted and await self._token(attempt):
                await _send(response, {**head, "choices": [_choice(0, WORD, None)]})
        if attempt.aborted.is_set():
            return response
        await _send(response, {**head, "choices": [_choice(0, "", "length")]})
        self._end(attempt, "finished")
        await response.write(f"data: [DONE]\n\n: motet {json.dumps(attempt.trailer)}\n\n".encode())
        return response

    def _end(self, attempt: Attempt, outcome: str) -> None:
        """Its one line in the journal."""
        if attempt.outcome is not None:
            return
        attempt.outcome, attempt.ended_at = outcome, time.time()
        named = attempt.headers
        self.journal.append(
            {
                "n": len(self.journal) + 1,
                "request": attempt.request,
                "attempt": attempt.number,
                "tenant": named.get("x-motet-tenant", ""),
                "key": named.get("x-motet-key", ""),
                "artefact": named.get("x-motet-artefact"),
                "owner": named.get("x-motet-owner"),
                "version": named.get("x-motet-version", ""),
                "purpose": named.get("x-motet-purpose", "tenant"),
                "outcome": outcome,
                "prompt": attempt.prompt,
                "completion": attempt.completion,
                "cached": 0,
                "tier": "base",
                "ended_at": datetime.now(UTC).isoformat(),
            }
        )

    async def abort(self, request: web.Request) -> web.Response:
        name = (request.match_info["request"], int(request.query["attempt"]))
        attempt = self.attempts.get(name)
        if attempt is None:
            self.barred.add(name)
            return web.json_response({"detail": "never seen"}, status=404)
        attempt.aborted.set()
        self._end(attempt, "aborted")
        return web.json_response(attempt.trailer)

    async def prove(self, request: web.Request) -> web.Response:
        verdict = {"artefact": (await request.json())["artefact"], "base_digest": BASE_DIGEST}
        checks = [{"name": "loads", "passed": True, "message": "a fake has looked at nothing"}]
        return web.json_response(verdict | {"passed": True, "checks": checks})

    async def hold(self, request: web.Request) -> web.Response:
        artefact, wish = request.match_info["artefact"], await request.json()
        self._lay(self.host | {artefact}, self.device | ({artefact} if wish.get("on_device") else set()))
        return web.Response()

    async def forget(self, request: web.Request) -> web.Response:
        artefact = request.match_info["artefact"]
        self._lay(self.host - {artefact}, self.device - {artefact})
        return web.Response()

    async def look_for(self, request: web.Request) -> web.Response:
        held = request.match_info["artefact"] in self.host | self.device
        return web.Response(status=200 if held else 404)

    def _lay(self, host: set[str], device: set[str]) -> None:
        if (host, device) != (self.host, self.device):
            self.host, self.device, self.sequence = host, device, self.sequence + 1

    async def state(self, _: web.Request) -> web.Response:
        """The least that the registry reads."""
        counts = {"running": self.running, "waiting": self.open - self.running, "waiting_tokens": 0}
        held = {"device": sorted(self.device), "host": sorted(self.host)}
        base = {"base_id": self.behaviour.base_id, "base_digest": BASE_DIGEST}
        return web.json_response({"sequence": self.sequence, **held, **base, **counts})

    async def read_journal(self, request: web.Request) -> web.Response:
        after, limit = int(request.query["after"]), int(request.query["limit"])
        lines = self.journal[after : after + limit]
        following = lines[-1]["n"] if lines else after
        return web.json_response({"journal_id": self.journal_id, "lines": lines, "next": following})

    async def break_artefact(self, request: web.Request) -> web.Response:
        told = await request.json()
        if told["outcome"] is None:
            self.broken.pop(told["artefact"], None)
        else:
            self.broken[told["artefact"]] = told["outcome"]
        return web.Response()

    async def figures(self, request: web.Request) -> web.Response:
        """`times=1`: also when places came free, and who began when."""
        self._change(0)
        counts = {"busy_s": self.busy_s, "open": self.open, "most_at_a_time": self.most_at_a_time}
        times = {"releases": self.releases, "begun": self.begun} if "times" in request.query else {}
        return web.json_response(counts | times)


def _choice(index: int, text: str, reason: str | None, *, whole: bool = False) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"index": index, "message" if whole else "delta": message, "finish_reason": reason}


def _usage(attempt: Attempt) -> dict[str, int]:
    total = attempt.prompt + attempt.completion
    return {
        "prompt_tokens": attempt.prompt,
        "completion_tokens": attempt.completion,
        "total_tokens": total,
    }


async def _send(response: web.StreamResponse, payload: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(payload)}\n\n".encode())


async def _nothing(_: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake replica: it computes nothing.")
    parser.add_argument("port", type=int)
    parser.add_argument("--running", type=int, default=8)
    parser.add_argument("--frame-ms", type=float, default=1.0)
    parser.add_argument("--broken", type=int, default=0)
    parser.add_argument("--base-id")
    given = parser.parse_args()
    uvloop.install()
    replica = FakeReplica(
        Behaviour(
            os.environ["MOTET_ENGINE_TOKEN"],
            given.running,
            given.frame_ms / 1000,
            given.broken,
            given.base_id,
        )
    )
    web.run_app(
        replica.application(),
        host="127.0.0.1",
        port=given.port,
        access_log=None,
        print=None,
        handler_cancellation=True,
        handle_signals=True,
        shutdown_timeout=0.2,
    )


if __name__ == "__main__":
    main()
