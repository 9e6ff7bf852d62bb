"""What a key holds, and whether another may give it: nobody passes on more than they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from math import inf

from gateway.catalog import policy
from gateway.errors import Forbidden
from gateway.networks import NetworkSet
from gateway.principal import Budget, Limits, Principal, Role, Scope, holds
from gateway.queueing.classes import CLASSES, class_index


@dataclass(frozen=True, slots=True)
class Grant:
    """All that a key's policy says. Absent (None) is without bound, as in the key's row."""

    scopes: frozenset[Scope]
    allowed_models: frozenset[str] | None = None
    service_class: str = CLASSES[0]
    allowed_networks: NetworkSet | None = None
    expires_at: datetime | None = None
    limits: Limits = field(default_factory=Limits)
    budgets: tuple[Budget, ...] = ()  # of the key itself; those that only tell bound nothing

    def may(self, scope: Scope) -> bool:
        return holds(self.scopes, scope)

    def excess(self, wanted: Grant) -> str | None:
        """The first field of `wanted` that goes beyond this grant, by its name in the API; None when all of
        it is within."""
        beyond = policy.exceeds(self, wanted)
        if beyond is not None:
            return beyond
        if class_index(wanted.service_class) < class_index(self.service_class):
            return "service_class"
        if not _networks_within(wanted.allowed_networks, self.allowed_networks):
            return "allowed_networks"
        if self.expires_at is not None and (wanted.expires_at is None or wanted.expires_at > self.expires_at):
            return "expires_at"
        return _limit_beyond(self.limits, wanted.limits) or _budget_beyond(self.budgets, wanted.budgets)

    def covers(self, wanted: Grant) -> bool:
        return self.excess(wanted) is None

    def require(self, wanted: Grant) -> None:
        """Raises `Forbidden` when `wanted` goes beyond this grant."""
        beyond = self.excess(wanted)
        if beyond is not None:
            raise Forbidden(f"You may not give a key more '{beyond}' than you have.", param=beyond)


_SCOPES = {scope.value: scope for scope in Scope}
EVERYTHING = Grant(frozenset(Scope))

BY_ROLE = {
    Role.OPERATOR: EVERYTHING,
    Role.TENANT_ADMIN: EVERYTHING,
    Role.DEVELOPER: Grant(frozenset({Scope.INFERENCE, Scope.ADAPTERS_READ, Scope.ADAPTERS_WRITE})),
}
"""What accounts may give keys of a tenant. Roles that are not here reach no route of keys."""


def held_by(principal: Principal) -> Grant:
    """What the API key that was proved may pass on: all that it has."""
    return Grant(
        scopes=principal.scopes,
        allowed_models=principal.allowed_models,
        service_class=principal.service_class,
        allowed_networks=principal.allowed_networks,
        expires_at=principal.expires_at,
        limits=principal.key_limits,
        budgets=tuple(budget for budget in principal.budgets if budget.of_key),
    )


def known_scopes(names: list[str]) -> frozenset[Scope]:
    """Those of a stored key. A scope that a newer release gave it allows nothing here."""
    return frozenset(_SCOPES[name] for name in names if name in _SCOPES)


def _networks_within(wanted: NetworkSet | None, held: NetworkSet | None) -> bool:
    if held is None:
        return True
    return wanted is not None and held.holds(wanted)


def _limit_beyond(held: Limits, wanted: Limits) -> str | None:
    for each in fields(Limits):
        most, asked = getattr(held, each.name), getattr(wanted, each.name)
        if most is not None and (asked is None or asked > most):
            return each.name
    return None


def _budget_beyond(held: Iterable[Budget], wanted: Iterable[Budget]) -> str | None:
    asked = {budget.period: budget.amount for budget in wanted if budget.hard}
    for budget in held:
        if budget.hard and asked.get(budget.period, inf) > budget.amount:
            return f"budget_{budget.period}"
    return None
