"""The private control API, `/internal/*`: what the gateway and operators need beyond inference."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, delete, get, post, put
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.params import Parameter
from litestar.response import Response, Stream

from engine.core.journal_reader import JournalReader
from engine.core.protocol import AddRequest, Ended, Purpose, Sampling
from engine.proofs.prover import Prover
from engine.proofs.report import Order
from engine.server import wire
from engine.server.asgi import ClientLeft, while_present
from engine.server.caller import adapter_ref, checked_artefact
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError, from_ended, not_found, timed_out, unavailable
from engine.server.purge import purge_adapter, what_is_held
from engine.server.state import StateReport

MAX_JOURNAL_LINES = 10_000
STATE_HEARTBEAT_S = 5.0
MAX_HINT_MS = 600_000
PROBE_TOKEN = 0
"""What a probe without a prompt of its own computes: any token that every vocabulary has."""


WithinMs = Annotated[int | None, Parameter(ge=0, le=MAX_HINT_MS)]


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    owner: str


class Hint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    owner: str
    within_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_HINT_MS)] | None = None
    keep_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_HINT_MS)] | None = None
    on_device: bool = False


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    artefact: str | None = None  # None = the base
    owner: str = ""


def _json(body: bytes, status: int = 200) -> Response[bytes]:
    return Response(body, status_code=status, media_type="application/json")


class Control(Controller):
    path = "/internal"

    @post("/requests/{request_id:str}/abort", status_code=200)
    async def abort(
        self, state: State, request_id: str, attempt: Annotated[int | None, Parameter(ge=0)] = None
    ) -> Response[bytes]:
        """The final usage of an attempt, once the core has acknowledged; of one already ended, its record."""
        ended = await _client(state).abort_by_id(request_id, attempt)
        if ended is None:
            raise not_found("No attempt of this request has reached the engine.")
        return _json(wire.trailer(ended))

    @put("/adapters/{artefact:str}", status_code=200)
    async def load_adapter(self, state: State, artefact: str, data: Owner) -> Response[bytes]:
        """Loads an adapter into host memory and answers when it is there."""
        client, ref = _client(state), adapter_ref(artefact, data.owner)
        client.prefetch(ref)
        event = client.when_adapter(artefact)  # the core answers each hint with one, whether it loads or not
        try:
            came = await asyncio.wait_for(event, state.settings.adapter_wait_s)
        except TimeoutError:
            raise timed_out("The adapter did not load in time.") from None
        if came.error or came.tier is None:
            raise unavailable(came.error or "The adapter was retired.", "adapter_unavailable")
        return _json(wire.encode({"artefact": artefact, "tier": came.tier, "load_ms": came.load_ms}))

    @post("/adapters/{artefact:str}/prefetch", status_code=202)
    async def prefetch(self, state: State, artefact: str, data: Hint) -> None:
        """A hint: the adapter will be wanted soon, within so many milliseconds or it is too late. `keep_ms`
        has it stay that long while others come and go, as far as its owner's share goes; asked again, it
        stays longer. `on_device`: in a slot, too."""
        ref = adapter_ref(artefact, data.owner)
        _client(state).prefetch(ref, data.within_ms, keep_ms=data.keep_ms, on_device=data.on_device)

    @get("/adapters/{artefact:str}")
    async def residency(self, state: State, artefact: str) -> Response[bytes]:
        """What of an adapter is where, this moment; 404 when nothing is left of it."""
        holding = await what_is_held(_client(state), state.settings.cache_dir, checked_artefact(artefact))
        if holding.is_gone:
            raise not_found("Nothing of this adapter is held here.")
        return _json(wire.encode(holding))

    @delete("/adapters/{artefact:str}", status_code=202)
    async def retire(
        self,
        state: State,
        artefact: str,
        owner: str = "",
        purge: bool = False,
        within_ms: WithinMs = None,
    ) -> Response[bytes]:
        """Forget the adapter as soon as nothing runs on it: 202, or with `purge` 200 once no byte of it is
        left. `owner` may be left out for one used lately. `within_ms`: how long it may wait for requests that
        run on it, which the settings limit."""
        client = _client(state)
        known = owner or client.owner_of(artefact)
        if known is None:
            raise not_found("This engine has not seen the adapter; name its owner.")
        ref = adapter_ref(artefact, known)
        if not purge:
            client.retire(ref)
            return _json(b"", 202)
        wait_s = state.settings.purge_wait_s
        if within_ms is not None:
            wait_s = min(wait_s, within_ms / 1000)
        await purge_adapter(client, state.settings.cache_dir, ref, wait_s)
        return _json(wire.encode({"artefact": artefact, "purged": True}))

    @post("/proofs", status_code=200)
    async def prove(self, request: Request[Any, Any, Any], state: State, data: Order) -> Response[bytes]:
        """Proves an adapter: 200 with the verdict, 503 where there is none."""
        prover: Prover = state.prover
        proof = prover.prove(adapter_ref(data.artefact, data.owner), longest=data.longest)
        try:
            return _json(wire.encode(await while_present(request.receive, proof)))
        except ClientLeft:
            raise EngineError(499, "The client left before the verdict.", code="aborted") from None

    @post("/probe", status_code=200)
    async def probe(self, state: State, data: Probe) -> Response[bytes]:
        """One real token from the given artefact; answers its usage and timings."""
        client = _client(state)
        add = AddRequest(
            request=f"probe-{uuid.uuid4()}",
            attempt=1,
            tenant="",
            key="",
            adapter=None if data.artefact is None else adapter_ref(data.artefact, data.owner),
            version="",
            salt="",
            prompt=[PROBE_TOKEN],
            sampling=Sampling(max_tokens=1, seed=0, temperature=0.0, ignore_eos=True),
            purpose=Purpose.PROBE,
        )
        attempt = client.submit(add)
        try:
            ended: Ended = await asyncio.shield(attempt.ended)
        finally:
            attempt.leave()
            client.abort(attempt)
        if ended.outcome != "finished":
            raise from_ended(ended)
        return _json(wire.trailer(ended))

    @get("/state")
    async def report(self, state: State, once: bool = False) -> Response[Any]:
        """The replica's state: one JSON (`once=1`), or a stream of it whenever it changes."""
        reporter: StateReport = state.report
        if once:
            return _json(reporter.report()[1])
        return Stream(_states(_client(state), reporter), media_type="text/event-stream")

    @get("/journal")
    async def journal(
        self,
        state: State,
        after: Annotated[int, Parameter(ge=0)] = 0,
        limit: Annotated[int, Parameter(ge=1, le=MAX_JOURNAL_LINES)] = 1_000,
    ) -> Response[bytes]:
        """Lines numbered after `after`, oldest first."""
        reader: JournalReader = state.journal
        async with state.journal_lock:  # the reader remembers its place
            try:
                page = await asyncio.to_thread(reader.read, after, limit)
            except OSError as error:
                raise unavailable(
                    f"The journal can't be read: {error.strerror}.", "journal_unreadable"
                ) from error
        return _json(wire.encode(page))


async def _states(client: CoreClient, reporter: StateReport) -> AsyncIterator[bytes]:
    changed = client.watch()
    try:
        while True:
            changed.clear()
            yield b"id: %d\ndata: %b\n\n" % reporter.report()
            if client.draining or client.failure is not None:
                return
            try:
                await asyncio.wait_for(changed.wait(), STATE_HEARTBEAT_S)
            except TimeoutError:
                yield b": alive\n\n"
    finally:
        client.unwatch(changed)


def _client(state: State) -> CoreClient:
    client: CoreClient = state.client
    return client


def problem_handler(_: Request[Any, Any, Any], error: EngineError) -> Response[bytes]:
    return Response(
        error.problem_body,
        status_code=error.status,
        media_type="application/problem+json",
        headers={name.decode(): value.decode() for name, value in error.headers},
    )


def http_problem_handler(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refuses by itself: no such route, a malformed parameter or body."""
    known = EngineError(error.status_code, error.detail, kind="invalid_request_error")
    if request.scope["path"].startswith("/v1/"):
        return _json(known.openai_body, known.status)
    return problem_handler(request, known)
