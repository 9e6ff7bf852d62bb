"""Turns whatever a handler raised into the one error answer of its prefix. Also what the router itself
raises."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    SerializationException,
    ValidationException,
)
from litestar.types import ExceptionHandlersMap
from sqlalchemy.exc import DBAPIError

from adapters.refusal import RequestRefused, refusal_of
from gateway.errors import (
    ApiError,
    BadRequest,
    BodyTooLarge,
    MethodNotAllowed,
    NotFound,
    from_refusal,
)

log = structlog.get_logger(__name__)

PROBLEM_ROUTES = ("/api/",)
JSON = "application/json"
PROBLEM = "application/problem+json"
_TOO_LARGE = 413
_NOT_A_TEXT = "22021"  # SQLSTATE character_not_in_repertoire: PostgreSQL keeps every character but NUL

AnyRequest = Request[Any, Any, Any]


def answer(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The response to `error`: OpenAI's body, or problem details under `/api`."""
    made = as_api_error(error)
    if made.status >= 500:
        expected = isinstance(error, ApiError)  # a dependency is away: worth a line, not a stack
        log.error(
            "request_failed", status=made.status, reason=str(error), exc_info=None if expected else error
        )
    headers = {**made.headers}
    if request.scope["path"].startswith(PROBLEM_ROUTES):
        return Response(made.problem_body(), status_code=made.status, headers=headers, media_type=PROBLEM)
    return Response(made.openai_body(), status_code=made.status, headers=headers, media_type=JSON)


def as_api_error(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case RequestRefused():
            return from_refusal(error)
        case DBAPIError() if getattr(error.orig, "sqlstate", None) == _NOT_A_TEXT:
            return BadRequest("A text of the request holds a NUL character.", code="invalid_value")
        case NotFoundException():
            return NotFound("There is nothing here.")
        case MethodNotAllowedException():
            return MethodNotAllowed("This method is not allowed here.", headers=error.headers)
        case SerializationException() if isinstance(error.__cause__, msgspec.MsgspecError):
            return from_refusal(refusal_of(error.__cause__))
        case ValidationException() | SerializationException():
            return _invalid(error)
        case HTTPException() if error.status_code == _TOO_LARGE:
            return BodyTooLarge("The request body is too large.")
        case HTTPException() if error.status_code < 500:
            return BadRequest(error.detail)
        case _:
            return ApiError("Something went wrong on our side. Try again; if it stays, name the request id.")


def _invalid(error: ValidationException | SerializationException) -> ApiError:
    """Litestar lists what was wrong in `extra`: a message and the parameter's name."""
    extra = getattr(error, "extra", None)
    if isinstance(extra, list) and extra and isinstance(extra[0], dict):
        key = extra[0].get("key")
        message = str(extra[0].get("message", error.detail))
        if key == "data":  # of the body as a whole: the text itself names the field
            return from_refusal(refusal_of(msgspec.ValidationError(message)))
        return BadRequest(message, param=str(key) if key else None, code="invalid_value")
    return BadRequest("The request is not valid.", code="invalid_value")


HANDLERS: ExceptionHandlersMap = {Exception: answer}
