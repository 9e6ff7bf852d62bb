"""A bounded, per-worker memory of resolved names."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.principal import TenantId

V = TypeVar("V")
Key = tuple[TenantId, int, str]
"""(tenant, its epoch, model): what changes a tenant's catalog moves its epoch, so entries never go stale."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Another tenant, whose catalog an entry was read from, at its epoch of before the reading."""

    tenant: TenantId
    epoch: int


class ResolveCache(Generic[V]):
    """Least recently used entries go first. Unknown names are not kept: anyone could make them up.

    An entry that was read from another tenant's catalog goes when that tenant's epoch moves, which somebody
    tells by `moved` (`api_keys/revocation.py`)."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._kept: OrderedDict[Key, tuple[V, Owner | None]] = OrderedDict()
        self._of_owner: dict[TenantId, set[Key]] = {}

    def get(self, key: Key) -> V | None:
        entry = self._kept.get(key)
        if entry is None:
            return None
        self._kept.move_to_end(key)
        return entry[0]

    def put(self, key: Key, value: V, owner: Owner | None = None) -> None:
        self._drop(key)
        self._kept[key] = (value, owner)
        if owner is not None:
            self._of_owner.setdefault(owner.tenant, set()).add(key)
        while len(self._kept) > self._entries:
            self._drop(next(iter(self._kept)))

    def tenants(self) -> list[TenantId]:
        """Those whose epochs other tenants' entries hang on."""
        return list(self._of_owner)

    def moved(self, tenant: TenantId, epoch: int) -> bool:
        """A tenant's epoch is `epoch`: what others have of it from under an earlier one goes. Whether there
        was any."""
        old = [key for key in self._of_owner.get(tenant, ()) if self._read_before(key, epoch)]
        for key in old:
            self._drop(key)
        return bool(old)

    def __len__(self) -> int:
        return len(self._kept)

    def _read_before(self, key: Key, epoch: int) -> bool:
        owner = self._kept[key][1]
        return owner is not None and owner.epoch < epoch

    def _drop(self, key: Key) -> None:
        _, owner = self._kept.pop(key, (None, None))
        if owner is None:
            return
        keys = self._of_owner[owner.tenant]
        keys.discard(key)
        if not keys:
            del self._of_owner[owner.tenant]
