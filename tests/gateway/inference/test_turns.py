"""A crowd of one tenant's costs another the wait for a place."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from gateway.inference.turns import Turns
from gateway.principal import TenantId

LOUD, QUIET = TenantId(uuid4()), TenantId(uuid4())


async def test_tenants_take_turns_and_each_tenants_own_keep_their_order() -> None:
    turns, order = Turns(1), list[str]()

    async def piece(tenant: TenantId, name: str) -> None:
        async with turns.one_of(tenant):
            order.append(name)
            await asyncio.sleep(0)

    async with turns.one_of(LOUD):
        crowd = [asyncio.create_task(piece(LOUD, f"loud {number}")) for number in range(5)]
        await asyncio.sleep(0)
        quiet = [asyncio.create_task(piece(QUIET, f"quiet {number}")) for number in range(2)]
        await asyncio.sleep(0)
    await asyncio.gather(*crowd, *quiet)
    assert order == ["loud 0", "quiet 0", "loud 1", "quiet 1", "loud 2", "loud 3", "loud 4"]
    assert turns._free == 1


async def test_who_leaves_while_waiting_or_as_its_turn_comes_keeps_no_place() -> None:
    turns, entered = Turns(1), list[str]()

    async def piece(name: str) -> None:
        async with turns.one_of(QUIET):
            entered.append(name)

    async with turns.one_of(LOUD):
        waiting = [asyncio.create_task(piece(name)) for name in ("left", "given", "last")]
        await asyncio.sleep(0)
        waiting[0].cancel()
    waiting[1].cancel()  # its turn has come, and it has not taken it
    await asyncio.gather(*waiting, return_exceptions=True)
    assert entered == ["last"]
    assert turns._free == 1
