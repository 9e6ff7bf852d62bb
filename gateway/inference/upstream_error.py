"""What an error answer of a replica means here: the client's, the replica's, or that it is full."""

from __future__ import annotations

from enum import Enum

import msgspec

from gateway.errors import ApiError, BadGateway, BadRequest, Timeout, Unavailable, retry_headers

CLIENT_STATUSES = frozenset({400, 413, 422})
"""Only these may be the client's fault; a 401 or 404 of a replica is ours."""


class Verdict(Enum):
    ANSWER = "answer"  # the client hears it; another replica would say the same
    BUSY = "busy"  # back to the queue
    RETRY = "retry"  # another replica may do better


class _Error(msgspec.Struct):
    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | None = None


class _Body(msgspec.Struct):
    error: _Error


_BODY = msgspec.json.Decoder(_Body)


def upstream_error(status: int, body: bytes) -> ApiError:
    """The replica's error as the gateway's own; its words pass only where they are meant for the client."""
    try:
        said = _BODY.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = _Error()
    if status in CLIENT_STATUSES and said.message:
        error: ApiError = BadRequest(said.message, param=said.param, code=said.code)
        error.status = status
        error.type = said.type or error.type
        return error
    if status == 504:
        return Timeout(
            said.message or "The model did not answer in time.", code=said.code, headers=retry_headers(1.0)
        )
    if status == 503:
        return Unavailable(said.message or "The model can't answer now.", code=said.code)
    return BadGateway("The model's replica failed.")


def verdict_of(status: int, error: ApiError) -> Verdict:
    if status == 503 and error.code == "replica_busy":
        return Verdict.BUSY
    if status in CLIENT_STATUSES or status == 504:
        return Verdict.ANSWER
    return Verdict.RETRY
