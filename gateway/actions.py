"""What a viewer may do with an object: its `can`, out of the table of roles. A client that draws only from
it needs no role's name, and offers nothing that is then refused.

Each noun lists its actions beside its wire types, as calls of the API; whether the role of who asks reaches
such a call, `gateway/roles.py` says, as it does at the door. What an object's own state rules out, the noun
takes away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from gateway.principal import Admin, Role
from gateway.roles import EVERYONE, roles_of

Name = TypeVar("Name", bound=str)
TENANT: Final = "/api/v1/tenants/{tenant}"


class Call(NamedTuple):
    """A route as the table of roles has it."""

    method: str
    route: str

    @property
    def changes(self) -> bool:
        return self.method != "GET"


def allowed(actions: Mapping[Name, Call], role: Role | None, *, without: Collection[str] = ()) -> list[Name]:
    """Those that the role reaches, in their own order, but for those `without`. None: an API key, whose scope
    let it in."""
    return [
        name
        for name, call in actions.items()
        if name not in without and (role is None or role in roles_of(*call))
    ]


def of_account(actions: Mapping[Name, Call], admin: Admin) -> list[Name]:
    """Of calls that name no tenant: those of everyone, and of operators who are not bound to a tenant."""
    is_operator = admin.is_operator and admin.only is None
    return [
        name
        for name, call in actions.items()
        if roles_of(*call) == EVERYONE or (is_operator and Role.OPERATOR in roles_of(*call))
    ]
