"""What a request is known by again where an alias is spread over versions, so that a conversation stays with
the one that began it: its session, its user, how it began, or its retries.

Nothing of it leaves the worker, and no more of a prompt is read than `MOST_CHARACTERS`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from litestar.types import Scope

from adapters.wire import ChatRequest, InferenceRequest
from gateway.idempotency.names import key_of
from gateway.inference.wanting import session_of

MOST_CHARACTERS: Final = 4_096


def sticky_of(scope: Scope, request: InferenceRequest, request_id: UUID) -> bytes:
    """`x-motet-session`, else `user`, else the messages up to the user's first, which later turns repeat;
    for a completion, whose later prompts need not begin alike, its `Idempotency-Key`, else the request
    itself. Raises `BadRequest` for a header that can't be one."""
    if (session := session_of(scope, request)) is not None:
        return b"session\0" + session.encode()
    if isinstance(request, ChatRequest):
        return b"messages\0" + _beginning(request)
    if (key := key_of(scope["headers"])) is not None:
        return b"retries\0" + key.encode()
    return b"request\0" + request_id.bytes


def _beginning(request: ChatRequest) -> bytes:
    parts: list[str] = []
    left = MOST_CHARACTERS
    for message in request.messages:
        text = message.text[:left]
        parts += [message.role, text]
        left -= len(text)
        if message.role == "user" or left <= 0:
            break
    return "\0".join(parts).encode("utf-8", "surrogatepass")
