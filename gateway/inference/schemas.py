"""The OpenAPI operations of the inference routes, made from the structs that decode them
(`adapters/wire.py`)."""

from __future__ import annotations

from typing import Any

import msgspec

from adapters.wire import ChatRequest, CompletionRequest, InferenceRequest
from gateway.idempotency.names import MAX_CHARACTERS

_LIMIT_HEADERS = {
    f"x-ratelimit-{what}-{meter}": {"schema": {"type": "string"}}
    for what in ("limit", "remaining", "reset")
    for meter in ("requests", "tokens", "input-tokens", "output-tokens")
}
_ANSWER_HEADERS = {
    **_LIMIT_HEADERS,
    "x-motet-cache": {"schema": {"type": "string", "enum": ["hit", "miss", "off"]}},
    "x-motet-receipt": {
        "description": "What was used, signed. A stream has it in a comment before its [DONE].",
        "schema": {"type": "string"},
    },
    "idempotent-replayed": {"schema": {"type": "string", "enum": ["true"]}},
}
_PARAMETERS = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A retry with its first try's key joins it, or hears its answer again, for a day.",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_CHARACTERS,
            "pattern": "^[!-~]([ -~]*[!-~])?$",
        },
    },
    {
        "name": "x-motet-deadline-ms",
        "in": "header",
        "required": False,
        "description": "How long the client waits for the first byte, from the request's arrival.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 9_999_999_999},
    },
]
_FAILURES = {
    "400": {"description": "The request is not valid; `param` names the field."},
    "408": {"description": "The body did not arrive in time."},
    "409": {"description": "The request of this `Idempotency-Key` has run, and its answer was not kept."},
    "413": {"description": "The body is larger than 8 MiB."},
    "422": {"description": "The replica could not process it, or the `Idempotency-Key` is another's."},
    "429": {"description": "A limit was met. `Retry-After` and `retry-after-ms` say when to come back."},
    "502": {"description": "The replica broke off."},
    "503": {"description": "No replica is up, the queue is too long, or a dependency is away."},
    "504": {"description": "No replica had room, or none answered, in time."},
}


def _operation(summary: str, request: type[InferenceRequest]) -> dict[str, Any]:
    answer = {
        "description": "The answer, or with `stream: true` its chunks as events, ended by `data: [DONE]`.",
        "headers": _ANSWER_HEADERS,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
    return {
        "summary": summary,
        "tags": ["inference"],
        "parameters": _PARAMETERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(request)}}},
        "responses": {"200": answer, **_FAILURES},
    }


def _inlined(request: type[InferenceRequest]) -> Any:
    """One self-contained schema: an operation object has no place of its own for shared definitions."""
    (schema,), definitions = msgspec.json.schema_components([request], ref_template="{name}")
    return _resolve(schema, definitions)


def _resolve(node: Any, definitions: dict[str, Any]) -> Any:
    match node:
        case {"$ref": str(name)}:
            return _resolve(definitions[name], definitions)
        case dict():
            return {
                key: _resolve(value, definitions) for key, value in node.items() if key != "discriminator"
            }
        case list():
            return [_resolve(item, definitions) for item in node]
        case _:
            return node


CHAT_OPERATION = {"post": _operation("Answer a conversation", ChatRequest)}
COMPLETIONS_OPERATION = {"post": _operation("Continue a text", CompletionRequest)}
