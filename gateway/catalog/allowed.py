"""What a viewer may do with an adapter and with one of its versions: their `can`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.actions import TENANT, Call, Name, allowed
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import AdapterRow
from gateway.models import AdapterVersion, VersionState
from gateway.principal import Principal, Role

AdapterAction = Literal[
    "upload",
    "retire",
    "restore",
    "purge",
    "read_purge",
    "list_aliases",
    "move_alias",
    "remove_alias",
    "list_rollouts",
    "begin_rollout",
    "compare",
    "read_limits",
    "change_limits",
    "read_placement",
    "change_placement",
    "end_placement",
    "list_shares",
    "share",
    "end_share",
]
_ADAPTER: Final = f"{TENANT}/adapters/{{name}}"
ADAPTER_ACTIONS: Final[Mapping[AdapterAction, Call]] = {
    "upload": Call("POST", f"{_ADAPTER}/versions"),
    "retire": Call("DELETE", _ADAPTER),
    "restore": Call("POST", f"{_ADAPTER}/restore"),
    "purge": Call("POST", f"{_ADAPTER}/purge"),
    "read_purge": Call("GET", f"{_ADAPTER}/purge"),
    "list_aliases": Call("GET", f"{_ADAPTER}/aliases"),
    "move_alias": Call("PUT", f"{_ADAPTER}/aliases/{{alias}}"),
    "remove_alias": Call("DELETE", f"{_ADAPTER}/aliases/{{alias}}"),
    "list_rollouts": Call("GET", f"{_ADAPTER}/rollouts"),
    "begin_rollout": Call("POST", f"{_ADAPTER}/rollouts"),
    "compare": Call("GET", f"{_ADAPTER}/versions/{{number}}/diff/{{other}}"),
    "read_limits": Call("GET", f"{_ADAPTER}/limits"),
    "change_limits": Call("PATCH", f"{_ADAPTER}/limits"),
    "read_placement": Call("GET", f"{_ADAPTER}/placement"),
    "change_placement": Call("PUT", f"{_ADAPTER}/placement"),
    "end_placement": Call("DELETE", f"{_ADAPTER}/placement"),
    "list_shares": Call("GET", f"{_ADAPTER}/shares"),
    "share": Call("PUT", f"{_ADAPTER}/shares/{{recipient}}"),
    "end_share": Call("DELETE", f"{_ADAPTER}/shares/{{recipient}}"),
}
_OF_ACCOUNTS: Final = frozenset({"read_limits", "change_limits", "share", "end_share"})
"""Never a key's."""
_OF_WHAT_IS_THERE: Final = frozenset(
    {
        *("retire", "list_aliases", "move_alias", "remove_alias", "list_rollouts", "begin_rollout"),
        *("read_placement", "change_placement", "end_placement", "list_shares", "share", "end_share"),
        *("read_limits", "change_limits", "compare"),
    }
)
"""Refused once all versions are retired."""

VersionAction = Literal["read_proof", "prove", "retire", "restore", "purge", "read_purge"]
_VERSION: Final = f"{_ADAPTER}/versions/{{number}}"
VERSION_ACTIONS: Final[Mapping[VersionAction, Call]] = {
    "read_proof": Call("GET", f"{_VERSION}/proof"),
    "prove": Call("POST", f"{_VERSION}/proof"),
    "retire": Call("DELETE", _VERSION),
    "restore": Call("POST", f"{_VERSION}/restore"),
    "purge": Call("POST", f"{_VERSION}/purge"),
    "read_purge": Call("GET", f"{_VERSION}/purge"),
}


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: an account in a role, or a key (`role` None)."""

    principal: Principal
    role: Role | None

    def can_adapter(self, row: AdapterRow) -> list[AdapterAction]:
        without = self._never(ADAPTER_ACTIONS, row.adapter.name)
        if self.role is None:
            without |= _OF_ACCOUNTS
        if not row.is_there:
            without |= _OF_WHAT_IS_THERE
        if not row.has_retired:
            without |= {"restore"}
        return allowed(ADAPTER_ACTIONS, self.role, without=without)

    def can_version(self, name: str, version: AdapterVersion) -> list[VersionAction]:
        without = self._never(VERSION_ACTIONS, name)
        if version.state == VersionState.RETIRED:
            without |= {"read_proof", "prove", "retire"}
        else:
            without |= {"restore"}
        if version.state == VersionState.REJECTED and version.ready_at is None:
            without |= {"prove"}  # its bytes are gone
        return allowed(VERSION_ACTIONS, self.role, without=without)

    def can_of(self, actions: Mapping[Name, Call], adapter: str, without: Collection[str] = ()) -> list[Name]:
        """Of actions on what belongs to the adapter: its aliases, its rollouts."""
        return allowed(actions, self.role, without={*without, *self._never(actions, adapter)})

    def _never(self, actions: Mapping[Name, Call], name: str) -> set[Name]:
        """What a key's scopes and models rule out; an account's role has its own say."""
        if may(self.principal, Action.CHANGE, name):
            return set()
        return {action for action, call in actions.items() if call.changes}
