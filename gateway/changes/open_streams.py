"""How many streams a worker holds open: of all, of one tenant's members, of one account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.changes.metrics import REFUSED, STREAMS
from gateway.errors import ApiError, RateLimited, Unavailable

RETRY_AFTER_S: Final = 30.0
SHARE_OF_TENANT: Final = 4
"""Members of one tenant have this part of all streams at most."""


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Of one worker."""

    most: int
    of_account: int

    @property
    def of_tenant(self) -> int:
        return max(1, self.most // SHARE_OF_TENANT)


class OpenStreams:
    """One a worker."""

    def __init__(self, bounds: StreamBounds) -> None:
        self._bounds = bounds
        self._by_account: Counter[UUID] = Counter()
        self._by_tenant: Counter[UUID] = Counter()
        self.now = 0

    @contextmanager
    def one_of(self, account: UUID, tenant: UUID | None) -> Iterator[None]:
        """Holds a place while the block runs; `tenant` is that of a member, None an operator's. Raises
        `RateLimited` beyond the account's, `Unavailable` beyond the others."""
        refused = self._refused(account, tenant)
        if refused is not None:
            raise refused
        self._count(account, tenant, 1)
        STREAMS.inc()
        try:
            yield
        finally:
            STREAMS.dec()
            self._count(account, tenant, -1)

    def _refused(self, account: UUID, tenant: UUID | None) -> ApiError | None:
        if self._by_account[account] >= self._bounds.of_account:
            REFUSED.labels("account").inc()
            return RateLimited(
                f"An account has at most {self._bounds.of_account} streams of changes open here.",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_streams",
            )
        full = tenant is not None and self._by_tenant[tenant] >= self._bounds.of_tenant
        if full or self.now >= self._bounds.most:
            REFUSED.labels("tenant" if full else "all").inc()
            return Unavailable(
                "Too many streams of changes are open here. Ask now and then instead.",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_streams",
            )
        return None

    def _count(self, account: UUID, tenant: UUID | None, by: int) -> None:
        self.now += by
        for counter, name in ((self._by_account, account), (self._by_tenant, tenant)):
            if name is not None:
                counter[name] += by
                if not counter[name]:
                    del counter[name]
