"""What a request asks of the router, in its words: prefix, session, pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from litestar.types import Scope

from adapters.wire import InferenceRequest
from gateway.errors import BadRequest
from gateway.replicas.rules import Asking, PoolRule, pool_of
from gateway.replicas.want import Want

if TYPE_CHECKING:
    from gateway.inference.call import Call

SESSION_HEADER: Final = b"x-motet-session"
"""Requests with the same value go to one replica while it lives, so that they find their prefix there."""
MAX_SESSION_CHARACTERS: Final = 256


def session_of(scope: Scope, request: InferenceRequest) -> str | None:
    """The header's value, else the body's `user`. Raises 400 for a header that is empty or too long."""
    for name, value in scope["headers"]:
        if name == SESSION_HEADER:
            if not 0 < len(value) <= MAX_SESSION_CHARACTERS:
                raise BadRequest(
                    f"'{SESSION_HEADER.decode()}' must have 1 to {MAX_SESSION_CHARACTERS} characters.",
                    param=SESSION_HEADER.decode(),
                    code="invalid_value",
                )
            return value.decode("latin-1")
    return request.user or None


def want_of(call: Call, rules: Sequence[PoolRule]) -> Want:
    """Everything in it is the tenant's own: prefixes go by its salt, so that they are forgotten with its
    cache, sessions by its id."""
    principal, artefact = call.principal, call.artefact
    pool, fallback = pool_of(
        rules,
        Asking(
            call.prompt_tokens,
            call.max_tokens,
            principal.service_class,
            principal.tenant,
            call.resolved.adapter.label if call.resolved.adapter is not None else None,
        ),
    )
    return Want(
        artefact,
        call.most_tokens,
        principal.tenant,
        tuple([hash((principal.salt, artefact, name)) for name in call.prefix]),
        None if call.session is None else hash((artefact, call.session)),
        pool,
        fallback,
        call.resolved.adapter.digests if call.resolved.adapter is not None else None,
    )
