"""How many of something dear, such as uploads, a worker does at a time, in all and for one tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.errors import RateLimited, Unavailable
from gateway.principal import TenantId

RETRY_AFTER_S: Final = 5.0


class TenantSlots:
    """Refuses at once instead of queueing: what waits would hold its connection, and its body. `of`: their
    name in the plural; tenant None: the operators."""

    def __init__(self, of: str, per_worker: int, per_tenant: int) -> None:
        self._of = of
        self._per_worker = per_worker
        self._per_tenant = per_tenant
        self._running: Counter[TenantId | None] = Counter()

    @property
    def running(self) -> int:
        return self._running.total()

    @contextmanager
    def hold(self, tenant: TenantId | None) -> Iterator[None]:
        """Raises like `take`."""
        self.take(tenant)
        try:
            yield
        finally:
            self.give_back(tenant)

    def take(self, tenant: TenantId | None) -> None:
        """Raises `RateLimited` when the tenant has its share, `Unavailable` when the worker is full."""
        if self._running[tenant] >= self._per_tenant:
            raise RateLimited(
                f"At most {self._per_tenant} {self._of} at a time; wait for one to end.",
                retry_after_s=RETRY_AFTER_S,
                code=f"too_many_{self._of}",
            )
        if self._running.total() >= self._per_worker:
            raise Unavailable(
                f"Too many {self._of} are running here; try again.", retry_after_s=RETRY_AFTER_S
            )
        self._running[tenant] += 1

    def give_back(self, tenant: TenantId | None) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
