"""The one rule of who may do what with which model: listing, resolving and uploading all ask here."""

from __future__ import annotations

from enum import StrEnum

from gateway.errors import Forbidden
from gateway.principal import Principal, Scope


class Action(StrEnum):
    SEE = "see"  # in lists, by id
    USE = "use"  # in a request's `model`
    CHANGE = "change"  # upload, delete


_SCOPES = {
    Action.SEE: (Scope.INFERENCE, Scope.ADAPTERS_READ),
    Action.USE: (Scope.INFERENCE,),
    Action.CHANGE: (Scope.ADAPTERS_WRITE,),
}


def may(principal: Principal, action: Action, name: str) -> bool:
    """Whether the key may do `action` with the model `name` (a base's id, or an adapter's bare name)."""
    scoped = any(principal.may(scope) for scope in _SCOPES[action])
    return scoped and (principal.allowed_models is None or name in principal.allowed_models)


def require_scope(principal: Principal, action: Action) -> None:
    """Raises `Forbidden` when no model at all would pass `may`: that tells of the key, never of a model."""
    scopes = _SCOPES[action]
    if not any(principal.may(scope) for scope in scopes):
        named = " or ".join(f"'{scope}'" for scope in scopes)
        raise Forbidden(f"This API key lacks the scope {named}.")
