"""Work of which a few pieces run at a time: tenants take turns, and a tenant's own go in the order in which
they came. So a crowd of one tenant's costs another the wait for a place, never for the crowd."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.principal import TenantId


class Turns:
    """Owned by one event loop. Pieces are meant to be of about one size; how many wait is bounded with the
    requests that they belong to (`open_requests.py`)."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: OrderedDict[TenantId, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def one_of(self, tenant: TenantId) -> AsyncIterator[None]:
        """Waits for the tenant's turn, and holds it while the block runs."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(tenant)
        try:
            yield
        finally:
            self._pass_on()

    async def _turn(self, tenant: TenantId) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given, and nobody takes it
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """To the tenant that had none for longest; those who left meanwhile are passed over."""
        while self._waiting:
            tenant, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[tenant] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
