"""How many inference requests a worker holds open, for all and for one tenant: each takes memory and two
sockets for as long as it waits or streams, whatever its tenant's own limits allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Gauge

from gateway.errors import Unavailable
from gateway.events.verdict import NO_ROOM
from gateway.principal import TenantId
from gateway.refusal import Refusal

RETRY_AFTER_S: Final = 1.0  # where requests end all the time, and another worker may have room at once

OPEN = Gauge(
    "motet_gateway_open_requests",
    "Inference requests that are waiting or answered now.",
    multiprocess_mode="livesum",
)
REFUSED = Counter(
    "motet_gateway_open_requests_refused",
    "Inference requests that a worker had no room for.",
    ["bound"],
)


class NoRoom(Unavailable):
    """Too many are open: 503, and nothing of ours is broken."""


class OpenRequests:
    """One per worker."""

    def __init__(self, most: int, most_of_tenant: int) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._by_tenant: dict[TenantId, int] = {}
        self.now = 0

    @contextmanager
    def one_of(self, tenant: TenantId) -> Iterator[None]:
        """Holds a place while the block runs. Raises `NoRoom` where there is none."""
        held = self._by_tenant.get(tenant, 0)
        if held >= self._most_of_tenant:
            raise _full("tenant", self._most_of_tenant)
        if self.now >= self._most:
            raise _full("all", self._most)
        self._by_tenant[tenant] = held + 1
        self.now += 1
        OPEN.inc()
        try:
            yield
        finally:
            OPEN.dec()
            self.now -= 1
            left = self._by_tenant[tenant] - 1
            if left:
                self._by_tenant[tenant] = left
            else:
                del self._by_tenant[tenant]


def _full(bound: str, most: int) -> NoRoom:
    REFUSED.labels(bound).inc()
    error = NoRoom(
        "Too many requests are open here. Try again.",
        code=NO_ROOM,
        retry_after_s=RETRY_AFTER_S,
    )
    owner = "tenant" if bound == "tenant" else "worker"
    error.refusal = Refusal(f"{owner}.open_requests", most, 1, 0)
    return error
