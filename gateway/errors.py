"""Every error the gateway answers with, made in one place: `/v1` speaks OpenAI's error body, `/api` RFC
9457."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from adapters.refusal import RequestRefused
from gateway.refusal import Refusal


class ApiError(Exception):
    """An answer that is an error. `type` and `code` are OpenAI's published values where one fits."""

    status = 500
    type = "server_error"
    code: str | None = None
    refusal: Refusal | None = None  # the limit behind it, in numbers

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """`details`: more members of the error object, beside its own four (of the problem, under `/api`)."""
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers: dict[str, str] = dict(headers or {})
        self.details: dict[str, object] = dict(details or {})

    def openai_body(self) -> bytes:
        own = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": self.details | own})

    def problem_body(self) -> bytes:
        problem: dict[str, object] = {
            **self.details,
            "type": "about:blank",
            "title": self.type,
            "status": self.status,
            "detail": self.message,
        }
        if self.code is not None:
            problem["code"] = self.code
        if self.param is not None:
            problem["param"] = self.param
        return msgspec.json.encode(problem)


class BadRequest(ApiError):
    status = 400
    type = "invalid_request_error"


class Unauthenticated(ApiError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"

    def __init__(self, message: str = "Incorrect API key provided.", *, code: str | None = None) -> None:
        super().__init__(message, headers={"www-authenticate": "Bearer"}, code=code)


class Forbidden(ApiError):
    status = 403
    type = "invalid_request_error"
    code = "insufficient_permissions"


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    """Unknown and forbidden look the same, so that names can't be probed."""

    code = "model_not_found"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model '{model}' does not exist or you do not have access to it.", param="model"
        )


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class NotAcceptable(ApiError):
    status = 406
    type = "invalid_request_error"
    code = "not_acceptable"


class RequestTimeout(ApiError):
    """The client sent its body too slowly."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class Conflict(ApiError):
    status = 409
    type = "invalid_request_error"
    code = "conflict"


class PreconditionFailed(ApiError):
    """What the caller read has changed since (`If-Match`)."""

    status = 412
    type = "invalid_request_error"
    code = "precondition_failed"


class BodyTooLarge(ApiError):
    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class Unprocessable(ApiError):
    """An upload that can't be an adapter here."""

    status = 422
    type = "invalid_request_error"
    code = "invalid_adapter"


class RateLimited(ApiError):
    """A limit was met; `retry_after_s` says when the same call would pass."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            headers={**(headers or {}), **retry_headers(retry_after_s)},
            details=details,
        )
        if kind is not None:
            self.type = kind


class Unavailable(ApiError):
    """Something we depend on can't answer now; never the client's fault."""

    status = 503
    type = "service_unavailable_error"
    code = "service_unavailable"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code, headers=retry_headers(retry_after_s))


class AdapterLost(Unavailable):
    """Ours to answer for, but only its owner, or whoever has a copy of the store, can mend it."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The stored weights of '{model}' are lost. Upload them again.",
            retry_after_s=60,
            code="adapter_lost",
        )


class Timeout(ApiError):
    status = 504
    type = "service_unavailable_error"
    code = "timeout"


class BadGateway(ApiError):
    """A replica broke off or spoke nonsense."""

    status = 502
    type = "server_error"
    code = "upstream_error"


class AnswerTooLong(BadRequest):
    """The client asked for more than can be passed on (log-probabilities of a long prompt for many choices).
    Nobody failed, so it counts as an answer that the client cut."""

    code = "answer_too_long"

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"A part of the answer is longer than {most_bytes} bytes. Ask for fewer log-probabilities."
        )


def retry_headers(retry_after_s: float) -> dict[str, str]:
    """`Retry-After` in whole seconds (at least 1) and `retry-after-ms`, which SDKs prefer."""
    return {
        "retry-after": str(max(1, math.ceil(retry_after_s))),
        "retry-after-ms": str(max(1, math.ceil(retry_after_s * 1000))),
    }


def from_refusal(refusal: RequestRefused) -> ApiError:
    """What a refused request body answers."""
    error = BadRequest(refusal.message, param=refusal.param, code=refusal.code)
    error.status = refusal.status
    if refusal.most is not None:
        error.refusal = Refusal("context.tokens", refusal.most, refusal.needed, refusal.most)
    return error
