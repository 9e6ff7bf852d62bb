"""What the last look at a credential proved, for a short while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.principal import TenantId

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    value: Value
    until: float
    tenant: TenantId | None


class TimedCache(Generic[Value]):
    """Bounded in entries and in age; the least recently used goes first. Keys are digests of secrets,
    never secrets."""

    def __init__(self, entries: int, age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        assert entries > 0
        self._entries = entries
        self._age_s = age_s
        self._clock = clock
        self._kept: OrderedDict[bytes, _Entry[Value]] = OrderedDict()
        self._of_tenant: dict[TenantId, set[bytes]] = {}

    def get(self, digest: bytes) -> Value | None:
        entry = self._kept.get(digest)
        if entry is None:
            return None
        if entry.until <= self._clock():
            self._drop(digest)
            return None
        self._kept.move_to_end(digest)
        return entry.value

    def put(self, digest: bytes, value: Value, tenant: TenantId | None = None) -> None:
        self._drop(digest)
        while len(self._kept) >= self._entries:
            self._drop(next(iter(self._kept)))
        self._kept[digest] = _Entry(value, self._clock() + self._age_s, tenant)
        if tenant is not None:
            self._of_tenant.setdefault(tenant, set()).add(digest)

    def forget(self, tenant: TenantId) -> None:
        """Drop all that was proved about a tenant."""
        for digest in list(self._of_tenant.get(tenant, ())):
            self._drop(digest)

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, digest: bytes) -> None:
        entry = self._kept.pop(digest, None)
        if entry is None or entry.tenant is None:
            return
        digests = self._of_tenant[entry.tenant]
        digests.discard(digest)
        if not digests:
            del self._of_tenant[entry.tenant]
