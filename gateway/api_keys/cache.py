"""What the last look at a credential proved, for a short while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.principal import TenantId

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    value: Value
    fresh_until: float
    kept_until: float
    tenant: TenantId | None


class TimedCache(Generic[Value]):
    """Bounded in entries and in age; the least recently used goes first. Keys are digests of secrets,
    never secrets.

    An entry is fresh for `age_s`. With a longer `stale_s` it is kept until then for `stale`, which is for
    when nobody can be asked.
    """

    def __init__(
        self,
        entries: int,
        age_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        stale_s: float = 0.0,
    ) -> None:
        assert entries > 0
        self._entries = entries
        self._age_s = age_s
        self._stale_s = max(age_s, stale_s)
        self._clock = clock
        self._kept: OrderedDict[bytes, _Entry[Value]] = OrderedDict()
        self._of_tenant: dict[TenantId, set[bytes]] = {}

    def get(self, digest: bytes) -> Value | None:
        """What is fresh."""
        entry = self._entry(digest)
        return entry.value if entry is not None and entry.fresh_until > self._clock() else None

    def stale(self, digest: bytes) -> Value | None:
        """What was proved at most `stale_s` ago and not forgotten since."""
        entry = self._entry(digest)
        return None if entry is None else entry.value

    def put(self, digest: bytes, value: Value, tenant: TenantId | None = None) -> None:
        self._drop(digest)
        while len(self._kept) >= self._entries:
            self._drop(next(iter(self._kept)))
        now = self._clock()
        self._kept[digest] = _Entry(value, now + self._age_s, now + self._stale_s, tenant)
        if tenant is not None:
            self._of_tenant.setdefault(tenant, set()).add(digest)

    def discard(self, digest: bytes) -> None:
        self._drop(digest)

    def forget(self, tenant: TenantId) -> None:
        """Drop all that was proved about a tenant."""
        for digest in list(self._of_tenant.get(tenant, ())):
            self._drop(digest)

    def tenants(self) -> list[TenantId]:
        """Those about whom something is kept."""
        return list(self._of_tenant)

    def holds_any(self) -> bool:
        """Whether anything is kept that has not run out."""
        now = self._clock()
        return any(entry.kept_until > now for entry in self._kept.values())

    def of(self, tenant: TenantId) -> Iterator[Value]:
        """All that is kept of a tenant, fresh or not."""
        return (self._kept[digest].value for digest in self._of_tenant.get(tenant, ()))

    def __len__(self) -> int:
        return len(self._kept)

    def _entry(self, digest: bytes) -> _Entry[Value] | None:
        entry = self._kept.get(digest)
        if entry is None:
            return None
        if entry.kept_until <= self._clock():
            self._drop(digest)
            return None
        self._kept.move_to_end(digest)
        return entry

    def _drop(self, digest: bytes) -> None:
        entry = self._kept.pop(digest, None)
        if entry is None or entry.tenant is None:
            return
        digests = self._of_tenant[entry.tenant]
        digests.discard(digest)
        if not digests:
            del self._of_tenant[entry.tenant]
