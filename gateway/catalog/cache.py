"""A bounded, per-worker memory of resolved names."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from gateway.principal import TenantId

V = TypeVar("V")
Key = tuple[TenantId, int, str]
"""(tenant, its epoch, model): what changes a tenant's catalog moves its epoch, so entries never go stale."""


class ResolveCache(Generic[V]):
    """Least recently used entries go first. Unknown names are not kept: anyone could make them up."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._kept: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key) -> V | None:
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def put(self, key: Key, value: V) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
