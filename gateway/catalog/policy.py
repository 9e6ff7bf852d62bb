"""The one rule of who may do what with which model.

`/v1/models`, inference and uploads ask `may`; making and changing API keys ask `exceeds`, which asks `may`
again, of every action and name that would be passed on. So no list shows what a request is refused, and no
key is made for what its maker can't do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from gateway.errors import Forbidden
from gateway.principal import Scope


class Action(StrEnum):
    USE = "use"  # in a request's `model`; what /v1/models lists
    SEE = "see"  # its versions and what they are made of
    CHANGE = "change"  # upload, delete


_SCOPES = {
    Action.USE: Scope.INFERENCE,
    Action.SEE: Scope.ADAPTERS_READ,
    Action.CHANGE: Scope.ADAPTERS_WRITE,
}


class Holder(Protocol):
    """What of a key, or of a grant, decides: a `Principal` is one."""

    @property
    def allowed_models(self) -> frozenset[str] | None: ...  # None = any of its tenant's

    def may(self, scope: Scope) -> bool: ...


def may(holder: Holder, action: Action, name: str) -> bool:
    """Whether the key may do `action` with the model `name` (a base's id, an adapter's bare name, or
    `owner/name` of another tenant's)."""
    return holder.may(_SCOPES[action]) and (holder.allowed_models is None or name in holder.allowed_models)


def require_scope(holder: Holder, action: Action) -> None:
    """Raises `Forbidden` when no model at all would pass `may`: that tells of the key, never of a model."""
    if not holder.may(_SCOPES[action]):
        raise Forbidden(f"This API key lacks the scope '{_SCOPES[action]}'.")


def exceeds(holder: Holder, wanted: Holder) -> str | None:
    """What `wanted` would have beyond `holder`: 'scopes', 'allowed_models', or None when nothing."""
    if any(wanted.may(scope) and not holder.may(scope) for scope in Scope):
        return "scopes"
    passed_on = [action for action, scope in _SCOPES.items() if wanted.may(scope)]
    if wanted.allowed_models is None:
        return "allowed_models" if passed_on and holder.allowed_models is not None else None
    names = wanted.allowed_models
    beyond = any(not may(holder, action, name) for action in passed_on for name in names)
    return "allowed_models" if beyond else None
