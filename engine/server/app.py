"""The engine server's routes, on one page."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import msgspec
from litestar import Litestar, MediaType, asgi, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.response import Response
from litestar.types import ASGIApp, Receive, Scope, Send

from engine.config import EngineSettings
from engine.core.journal_reader import JournalReader
from engine.proofs.prover import Prover
from engine.server.asgi import BearerDoor
from engine.server.chat import Intake
from engine.server.control import Control, http_problem_handler, problem_handler
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError
from engine.server.inference import Inference
from engine.server.metrics import Metrics
from engine.server.state import StateReport

PUBLIC = frozenset({"/healthz"})
"""Routes without a token."""

MAX_CONTROL_BYTES = 64 * 1024
STARTED = int(time.time())


@dataclass(frozen=True, slots=True)
class Parts:
    """The long-lived objects the routes lean on; built and closed by `serve`."""

    settings: EngineSettings
    client: CoreClient
    intake: Intake
    metrics: Metrics
    prover: Prover


def create_app(parts: Parts) -> ASGIApp:
    settings, client = parts.settings, parts.client
    limits = (settings.max_body_bytes, settings.body_timeout_s)
    chat = Inference(client, parts.intake.chat, *limits)
    completion = Inference(client, parts.intake.completion, *limits)

    @asgi("/v1/chat/completions", copy_scope=False)
    async def chat_route(scope: Scope, receive: Receive, send: Send) -> None:
        await chat(scope, receive, send)

    @asgi("/v1/completions", copy_scope=False)
    async def completion_route(scope: Scope, receive: Receive, send: Send) -> None:
        await completion(scope, receive, send)

    app = Litestar(
        route_handlers=[chat_route, completion_route, models, healthz, readyz, metrics, Control],
        state=State(
            {
                "settings": settings,
                "client": client,
                "metrics": parts.metrics,
                "prover": parts.prover,
                "journal": JournalReader(settings.journal_dir),
                "journal_lock": asyncio.Lock(),
                "report": StateReport(client, settings.base_name, settings.admission_limit),
            }
        ),
        exception_handlers={EngineError: problem_handler, HTTPException: http_problem_handler},
        request_max_body_size=MAX_CONTROL_BYTES,  # the inference routes count for themselves
        openapi_config=None,
        logging_config=None,  # ours are set up by engine/server/logs.py
    )
    return BearerDoor(app, settings.tokens, PUBLIC)


@get("/v1/models")
async def models(state: State) -> Response[bytes]:
    """The base, under its public id; adapters are the gateway's to name."""
    base = {"id": state.settings.base_name, "object": "model", "created": STARTED, "owned_by": "motet"}
    return Response(msgspec.json.encode({"object": "list", "data": [base]}), media_type=MediaType.JSON)


@get("/healthz", media_type=MediaType.TEXT)
async def healthz() -> str:
    """This process lives."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT)
async def readyz(state: State) -> str:
    """The core holds its model and takes requests; else 503 with the reason."""
    state.client.check_serving()
    return "ready\n"


@get("/metrics")
async def metrics(state: State) -> Response[bytes]:
    return Response(state.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")
