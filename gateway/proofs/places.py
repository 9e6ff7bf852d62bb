"""How many proofs a process has at a time: tenants take turns, and none has more than its share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from gateway.inference.turns import Turns
from gateway.principal import TenantId

AT_ONCE: Final = 8
AT_ONCE_TENANT: Final = 2


@dataclass(slots=True)
class _Share:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE_TENANT))
    users: int = 0


class ProofPlaces:
    """Owned by one event loop."""

    def __init__(self) -> None:
        self._turns = Turns(AT_ONCE)
        self._shares: dict[TenantId, _Share] = {}

    @asynccontextmanager
    async def one_of(self, tenant: TenantId) -> AsyncIterator[None]:
        """Waits for a place, and holds it while the block runs."""
        share = self._shares.setdefault(tenant, _Share())
        share.users += 1
        try:
            async with share.places, self._turns.one_of(tenant):
                yield
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[tenant]
