"""Every error the engine server answers with: `/v1` speaks OpenAI's error body, `/internal` RFC 9457."""

from __future__ import annotations

import math

import msgspec

from adapters.refusal import RequestRefused
from engine.core.protocol import Ended, Outcome


class EngineError(Exception):
    """An answer that is an error, with OpenAI's published `type` and `code` where one fits."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "server_error",
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.trailer: bytes | None = None  # set for an attempt that reached the core

    @property
    def openai_body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    @property
    def problem_body(self) -> bytes:
        problem = {"type": "about:blank", "title": self.kind, "status": self.status, "detail": self.message}
        extra = {"code": self.code, "param": self.param}
        return msgspec.json.encode(
            problem | {name: value for name, value in extra.items() if value is not None}
        )

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.retry_after_s is None:
            return []
        return [
            (b"retry-after", str(max(1, math.ceil(self.retry_after_s))).encode()),
            (b"retry-after-ms", str(max(1, math.ceil(self.retry_after_s * 1000))).encode()),
        ]


def bad_request(message: str, param: str | None, code: str) -> EngineError:
    return EngineError(400, message, kind="invalid_request_error", code=code, param=param)


def not_found(message: str) -> EngineError:
    return EngineError(404, message, kind="invalid_request_error", code="not_found")


def conflict(message: str) -> EngineError:
    return EngineError(409, message, kind="invalid_request_error", code="conflict")


def unavailable(message: str, code: str, retry_after_s: float = 1.0) -> EngineError:
    kind = "service_unavailable_error"
    return EngineError(503, message, kind=kind, code=code, retry_after_s=retry_after_s)


def timed_out(message: str) -> EngineError:
    return EngineError(504, message, kind="service_unavailable_error", code="timeout")


def from_refusal(refusal: RequestRefused) -> EngineError:
    return EngineError(
        refusal.status, refusal.message, kind="invalid_request_error", code=refusal.code, param=refusal.param
    )


def from_ended(ended: Ended) -> EngineError:
    """What an attempt that did not finish answers, by its outcome. `ended.reason` is written for people."""
    match ended.outcome:
        case Outcome.REFUSED:
            message = ended.reason or "The request needs more memory than this model's whole KV cache."
            return bad_request(message, None, "context_length_exceeded")
        case Outcome.ADAPTER_FAILED | Outcome.NOT_FINITE:
            return unavailable(ended.reason or "The adapter could not be loaded.", "adapter_unavailable", 5.0)
        case Outcome.EXPIRED:
            return timed_out(ended.reason or "The deadline passed before the first token.")
        case Outcome.ABORTED:
            return EngineError(503, ended.reason or "The request was aborted.", code="aborted")
        case Outcome.CORE_FAILED:
            return EngineError(500, ended.reason or "The engine failed.", code="server_error")
        case Outcome.FINISHED:
            raise AssertionError("a finished attempt is no error")
