"""The OpenAPI document: what Litestar derives, plus the `@asgi` routes, which it leaves out.

An `@asgi` handler documents itself in `opt[OPERATION]`: an OpenAPI operation object for each of its methods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.handlers import ASGIRouteHandler
from litestar.openapi import OpenAPIConfig

from gateway.access import METHODS, PUBLIC, TENANT_ROUTES

OPERATION: Final = "openapi"
CONFIG: Final = OpenAPIConfig(title="Motet", version="1", render_plugins=[], path="/openapi")

_SCHEMES = {
    "api_key": {"type": "http", "scheme": "bearer", "description": "A tenant's API key, mt_…"},
    "admin_token": {"type": "http", "scheme": "bearer", "description": "An operator's token, mta_…"},
    "session": {"type": "apiKey", "in": "cookie", "name": "motet_session"},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "limit": {
                    "type": "object",
                    "description": "Of a 429: which limit was met, and when it is met no more.",
                    "properties": {
                        "limit_id": {"type": "string"},
                        "level": {"type": "string", "enum": ["tenant", "key", "adapter"]},
                        "limit": {"type": ["integer", "string"]},
                        "needed": {"type": ["integer", "string"]},
                        "available": {"type": ["integer", "string"]},
                        "retry_after_ms": {"type": "integer"},
                        "refill_at": {"type": ["string", "null"], "format": "date-time"},
                    },
                },
            },
        }
    },
}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "param": {"type": "string"},
    },
}
_REASONS = {
    "400": "The request is not valid.",
    "401": "No credential, or a wrong, revoked or expired one.",
    "403": "The credential may not do this.",
    "404": "There is no such thing, or not for this caller.",
    "405": "This method is not allowed here.",
    "408": "The body did not arrive in time.",
    "409": "It clashes with what is there.",
    "412": "It was changed meanwhile; `current` is what is there.",
    "413": "The body is too large.",
    "422": "The upload can't be an adapter here.",
    "429": "A limit was met; Retry-After says when to come back.",
    "500": "A fault of ours.",
    "502": "A replica broke off.",
    "503": "A dependency or every replica is away, or the queue is full.",
    "504": "It took too long.",
}
_CHANGING = {"post", "put", "patch", "delete"}
_METHOD_NAMES = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def document(app: Litestar) -> dict[str, Any]:
    """The whole document, as plain data."""
    derived: dict[str, Any] = app.openapi_schema.to_schema()
    paths: dict[str, Any] = dict(derived.get("paths") or {})
    for route in app.routes:
        handler = getattr(route, "route_handler", None)
        if isinstance(handler, ASGIRouteHandler):
            paths[template(route.path)] = _asgi_operations(handler)
    components = derived.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    components.setdefault("schemas", {}).update(Error=_ERROR, Problem=_PROBLEM)
    public = {(path, method) for path, method, is_public in operations(app) if is_public}
    for path, item in paths.items():
        for method, operation in item.items():
            if method in _METHOD_NAMES:
                _complete(path, method, operation, (path, method) in public)
    return {**derived, "paths": dict(sorted(paths.items()))}


def render(app: Litestar) -> bytes:
    return msgspec.json.encode(document(app))


def operations(app: Litestar) -> list[tuple[str, str, bool]]:
    """Every (path, method, is public) that the application answers, read from the routes themselves."""
    found = []
    for route in app.routes:
        handler = getattr(route, "route_handler", None)
        if isinstance(handler, ASGIRouteHandler):
            named = [(handler, method) for method in handler.opt[METHODS]]
        else:
            named = [
                (each, method)
                for each in getattr(route, "route_handlers", [])
                for method in each.http_methods
            ]
        found += [
            (template(route.path), method.lower(), bool(each.opt.get(PUBLIC)))
            for each, method in named
            if method != "OPTIONS"
        ]
    return sorted(set(found))


def template(path: str) -> str:
    """`/a/{b:uuid}` → `/a/{b}`."""
    return re.sub(r"\{([^:}]+):[^}]+\}", r"{\1}", path)


def _asgi_operations(handler: ASGIRouteHandler) -> dict[str, Any]:
    described: Mapping[str, Any] = handler.opt.get(OPERATION, {})
    summary = (handler.fn.__doc__ or handler.handler_name).strip().splitlines()[0]
    plain = {"summary": summary, "responses": {"200": {"description": "OK"}}}
    found = {}
    for method in handler.opt[METHODS]:
        operation = dict(described.get(method.lower(), plain))
        found[method.lower()] = {"operationId": f"{handler.handler_name}_{method.lower()}", **operation}
    return found


def _complete(path: str, method: str, operation: dict[str, Any], is_public: bool) -> None:
    """What every route of a prefix has in common: who may call it, and how it says no."""
    for_tenants = path.startswith(TENANT_ROUTES)
    if is_public:
        operation["security"] = []
    else:
        operation["security"] = [{"api_key": []}] if for_tenants else [{"admin_token": []}, {"session": []}]
    responses = operation.setdefault("responses", {})
    name, media = (
        ("Error", "application/json")
        if not path.startswith("/api/")
        else ("Problem", "application/problem+json")
    )
    content = {media: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    usual = ["400", "401", "405", "413", "429", "500", "503"]
    if not is_public:
        usual += ["403", "404"]
    elif "{" in path:
        usual += ["404"]
    if any(each["name"] == "if-match" for each in operation.get("parameters", ())):
        usual += ["412"]
    if method in _CHANGING:
        usual += ["408", "409"]
    for status in {*usual, *(status for status in responses if status >= "400")}:
        kept = responses.get(status, {})
        responses[status] = {
            "description": kept.get("description") or _REASONS.get(status, "Error"),
            "content": content,
        }
