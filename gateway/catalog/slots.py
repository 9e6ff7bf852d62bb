"""How many uploads a worker takes at a time, in all and of one tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import RateLimited, Unavailable
from gateway.principal import TenantId

RETRY_AFTER_S = 5.0


class UploadSlots:
    """Refuses at once instead of queueing: an upload that waits would hold its connection and its body."""

    def __init__(self, per_worker: int, per_tenant: int) -> None:
        self._per_worker = per_worker
        self._per_tenant = per_tenant
        self._running: Counter[TenantId] = Counter()

    @contextmanager
    def hold(self, tenant: TenantId) -> Iterator[None]:
        """Raises `RateLimited` when the tenant has its share, `Unavailable` when the worker is full."""
        if self._running[tenant] >= self._per_tenant:
            raise RateLimited(
                f"At most {self._per_tenant} uploads at a time; wait for one to end.",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_uploads",
            )
        if self._running.total() >= self._per_worker:
            raise Unavailable("Too many uploads are running here; try again.", retry_after_s=RETRY_AFTER_S)
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
