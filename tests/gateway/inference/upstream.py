"""A fake upstream that stands in for an engine: a real HTTP server which speaks the engine's protocol
(docs/ARCHITECTURE.md, seams), answers deterministically, and breaks off, stalls or refuses on demand.

It exists because an engine can't be told to fail at a chosen byte; the walk against a real engine is tested
in tests/acceptance.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.gateway.inference.chunks import Chunks

TOKEN = "engine-token"
SEND_BUFFER_BYTES = 64 * 1024  # so that it notices early when nobody reads


@dataclass
class Script:
    """How the next answers behave. Counts are of chunks (one a token)."""

    words: list[str] = field(default_factory=lambda: ["Hé", "llo", " 世界", "!"])
    busy: int = 0  # so many requests are turned away with 503 replica_busy
    refuse: tuple[int, dict[str, Any]] | None = None
    outcome: str = "refused"  # of what is refused
    cut_before: bool = False  # the connection dies before a byte
    cut_after: int | None = None  # of the whole stream: one more is before its last chunk, two before [DONE]
    fail_after: int | None = None  # an error frame and a trailer, as an engine whose core fails
    stall_after: int | None = None  # until aborted
    chunk_bytes: int | None = None
    newline: str = "\n"
    pause_s: float = 0.0
    fail_first: int = 0  # so many requests die before a byte
    trailer: bool = True
    stranger: tuple[str, bytes] | None = None  # a type and a body that no engine answers with, status 200
    headers: dict[str, str] = field(default_factory=dict)  # of answers, beside its own
    finish_reason: str = "stop"
    hold: asyncio.Event | None = None  # the second chunk waits for it


@dataclass
class Seen:
    request: str
    attempt: int
    headers: dict[str, str]
    body: bytes
    generated: int = 0
    outcome: str | None = None
    aborted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt(self) -> int:
        return 7


class Upstream:
    """One replica."""

    def __init__(self) -> None:
        self.script = Script()
        self.seen: dict[tuple[str, int], Seen] = {}
        self.journal: list[dict[str, Any]] = []
        self.prefetched: list[str] = []
        self.retired: list[tuple[str, str]] = []
        self.proofs: list[tuple[str, str, bool]] = []  # artefact, owner, longest
        self.busy_proofs = 0  # so many are turned away
        self.proof_failure: tuple[str, str] | None = None  # the check that fails, and why
        self.proof_passes: set[str | None] = set()  # artefacts that pass it all the same
        self.proof_gate: asyncio.Event | None = None
        self.proof_loses_core = False
        self.requests = 0
        self.ready = True
        self.base_digest = "d" * 64
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Upstream]:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._generate)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/internal/requests/{request}/abort", self._abort)
        app.router.add_post("/internal/proofs", self._prove)
        app.router.add_post("/internal/adapters/{artefact}/prefetch", self._prefetch)
        app.router.add_delete("/internal/adapters/{artefact}", self._retire)
        app.router.add_get("/internal/state", self._state)
        app.router.add_get("/internal/journal", self._journal)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(("127.0.0.1", 0))
        site = web.SockSite(runner, listener)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            for seen in self.seen.values():
                seen.aborted.set()
            await runner.cleanup()

    def only(self) -> Seen:
        assert len(self.seen) == 1
        return next(iter(self.seen.values()))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert request.headers["accept-encoding"] == "identity"
        self.requests += 1
        body = await request.read()
        if self.script.busy > 0:
            self.script.busy -= 1
            return _error(
                503,
                {
                    "message": "full",
                    "type": "service_unavailable_error",
                    "param": None,
                    "code": "replica_busy",
                },
            )
        seen = Seen(
            request.headers["x-motet-request"],
            int(request.headers["x-motet-attempt"]),
            dict(request.headers),
            body,
        )
        assert (seen.request, seen.attempt) not in self.seen
        self.seen[seen.request, seen.attempt] = seen
        if self.script.cut_before or self.script.fail_first > 0:
            self.script.fail_first -= 1
            self._end(seen, "aborted")
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if self.script.refuse is not None:
            status, error = self.script.refuse
            self._end(seen, self.script.outcome)
            return _error(status, error, self._trailer(seen))
        if self.script.stranger is not None:
            kind, said = self.script.stranger
            return web.Response(body=said, headers={"content-type": kind})
        asked = json.loads(body)
        if asked.get("stream"):
            return await self._stream(request, seen, asked)
        return await self._whole(request, seen, asked)

    async def _whole(self, request: web.Request, seen: Seen, asked: dict[str, Any]) -> web.StreamResponse:
        await self._run(seen)
        if self.script.cut_after is not None:
            response = web.StreamResponse(headers={"content-length": "1000"})
            await response.prepare(request)
            await response.write(b'{"id"')
            assert request.transport is not None
            request.transport.close()
            self._end(seen, "aborted")
            return response
        if seen.outcome is not None:  # aborted
            return _error(
                503,
                {"message": "aborted", "type": "server_error", "param": None, "code": "aborted"},
                self._trailer(seen),
            )
        self._end(seen, "finished")
        message = {"role": "assistant", "content": "".join(self.script.words)}
        answer = {
            "id": f"chatcmpl-{seen.request}",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": self.script.finish_reason}
            ],
            "usage": {
                "prompt_tokens": seen.prompt,
                "completion_tokens": seen.generated,
                "total_tokens": seen.prompt + seen.generated,
            },
        }
        return web.Response(
            body=json.dumps(answer, ensure_ascii=False).encode(),
            content_type="application/json",
            headers={"x-motet-trailer": json.dumps(self._trailer(seen)), **self.script.headers},
        )

    async def _run(self, seen: Seen) -> None:
        for number, _ in enumerate(self.script.words):
            if self.script.stall_after == number:
                await seen.aborted.wait()
            await self._held(seen, number)
            if seen.aborted.is_set():
                return
            seen.generated += 1
            await asyncio.sleep(self.script.pause_s)

    async def _stream(self, request: web.Request, seen: Seen, asked: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", **self.script.headers}
        )
        await response.prepare(request)
        chunks = Chunks(seen.request, asked)
        for number, word in enumerate(self.script.words):
            if await self._interfere(request, response, seen, number):
                return response
            seen.generated += chunks.num_choices
            for payload in chunks.of_word(word, first=number == 0):
                await self._frame(response, payload)
            await asyncio.sleep(self.script.pause_s)
        if await self._interfere(request, response, seen, len(self.script.words)):
            return response
        for payload in chunks.of_end(self.script.finish_reason, seen.prompt, seen.generated):
            await self._frame(response, payload)
        if await self._interfere(request, response, seen, len(self.script.words) + 1):
            return response
        self._end(seen, "finished")
        await self._bytes(response, f"data: [DONE]{self.script.newline * 2}".encode())
        if self.script.trailer:
            await self._send_trailer(response, seen)
        return response

    async def _interfere(
        self, request: web.Request, response: web.StreamResponse, seen: Seen, number: int
    ) -> bool:
        """Whether the stream is over now."""
        script = self.script
        if script.stall_after == number:
            await seen.aborted.wait()
        await self._held(seen, number)
        if seen.aborted.is_set():
            return True
        if script.cut_after == number:
            self._end(seen, "aborted")
            assert request.transport is not None
            request.transport.close()
            return True
        if script.fail_after == number:
            self._end(seen, "core_failed")
            await self._frame(
                response,
                {
                    "error": {
                        "message": "The engine failed.",
                        "type": "server_error",
                        "param": None,
                        "code": None,
                    }
                },
            )
            await self._send_trailer(response, seen)
            return True
        return False

    async def _held(self, seen: Seen, number: int) -> None:
        if self.script.hold is None or number != 1:
            return
        waits = [asyncio.create_task(event.wait()) for event in (self.script.hold, seen.aborted)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def _frame(self, response: web.StreamResponse, payload: dict[str, Any]) -> None:
        text = json.dumps(payload, ensure_ascii=False)
        await self._bytes(response, f"data: {text}{self.script.newline * 2}".encode())

    async def _send_trailer(self, response: web.StreamResponse, seen: Seen) -> None:
        await self._bytes(
            response, f": motet {json.dumps(self._trailer(seen))}{self.script.newline * 2}".encode()
        )

    async def _bytes(self, response: web.StreamResponse, data: bytes) -> None:
        size = self.script.chunk_bytes or len(data)
        for start in range(0, len(data), size):
            await response.write(data[start : start + size])
            if self.script.chunk_bytes:
                await asyncio.sleep(0)

    def _end(self, seen: Seen, outcome: str) -> None:
        if seen.outcome is not None:
            return
        seen.outcome = outcome
        self.journal.append(
            {
                "n": len(self.journal) + 1,
                "request": seen.request,
                "attempt": seen.attempt,
                "tenant": seen.headers.get("x-motet-tenant", ""),
                "key": seen.headers.get("x-motet-key", ""),
                "artefact": seen.headers.get("x-motet-artefact"),
                "owner": seen.headers.get("x-motet-owner"),
                "version": seen.headers.get("x-motet-version", ""),
                "purpose": seen.headers.get("x-motet-purpose", "tenant"),
                "outcome": outcome,
                "prompt": seen.prompt,
                "completion": seen.generated,
                "cached": 0,
                "queue_ms": 1.0,
                "load_ms": 0.0,
                "ttft_ms": 2.0,
                "total_ms": 5.0,
                "tier": "base",
                "ended_at": "2026-01-01T00:00:00Z",
            }
        )

    def _trailer(self, seen: Seen) -> dict[str, Any]:
        return {
            "usage": {"prompt": seen.prompt, "completion": seen.generated, "cached": 0},
            "timings": {"queue_ms": 1.0, "load_ms": 0.0, "ttft_ms": 2.0, "total_ms": 5.0},
            "tier": "base",
            "outcome": seen.outcome,
            "reason": "",
        }

    async def _abort(self, request: web.Request) -> web.Response:
        seen = self.seen.get((request.match_info["request"], int(request.query["attempt"])))
        if seen is None:
            return web.json_response({"detail": "never seen"}, status=404)
        self._end(seen, "aborted")
        seen.aborted.set()
        return web.json_response(self._trailer(seen))

    async def _prove(self, request: web.Request) -> web.Response:
        """Says what the test scripted, of an adapter that it has not looked at."""
        asked = await request.json()
        self.proofs.append((asked["artefact"], asked["owner"], asked["longest"]))
        if self.busy_proofs > 0:
            self.busy_proofs -= 1
            problem = {"type": "about:blank", "status": 503, "detail": "full", "code": "replica_busy"}
            return web.json_response(problem, status=503, content_type="application/problem+json")
        if self.proof_loses_core:
            problem = {"type": "about:blank", "status": 503, "detail": "gone", "code": "core_lost"}
            return web.json_response(problem, status=503, content_type="application/problem+json")
        if self.proof_gate is not None:
            await self.proof_gate.wait()
        if self.proof_failure is not None and asked["artefact"] not in self.proof_passes:
            name, message = self.proof_failure
            check = {"name": name, "passed": False, "figure": 0.0, "bound": 1e-4, "message": message}
        else:
            check = {"name": "loads", "passed": True, "figure": None, "bound": None, "message": ""}
        verdict = {"artefact": asked["artefact"], "base_digest": self.base_digest, "checks": [check]}
        timings = {"load_ms": 3.5, "tier": "store", "replica_ms": 40.0, "total_ms": 50.0}
        return web.json_response(verdict | timings | {"passed": check["passed"]})

    async def _prefetch(self, request: web.Request) -> web.Response:
        self.prefetched.append(request.match_info["artefact"])
        return web.Response(status=204)

    async def _retire(self, request: web.Request) -> web.Response:
        self.retired.append((request.match_info["artefact"], request.query["owner"]))
        return web.Response(status=202)

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "sequence": 1,
                "running": 0,
                "waiting": 0,
                "waiting_tokens": 0,
                "device": [],
                "host": [],
                "base_digest": self.base_digest,
            }
        )

    async def _journal(self, request: web.Request) -> web.Response:
        after, limit = int(request.query["after"]), int(request.query["limit"])
        lines = [line for line in self.journal if line["n"] > after][:limit]
        return web.json_response(
            {"journal_id": f"journal-{id(self)}", "lines": lines, "next": lines[-1]["n"] if lines else after}
        )

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)


def _error(status: int, error: dict[str, Any], trailer: dict[str, Any] | None = None) -> web.Response:
    headers = {"x-motet-trailer": json.dumps(trailer)} if trailer else {}
    return web.json_response({"error": error}, status=status, headers=headers)
