from __future__ import annotations

import asyncio

import pytest

from gateway.shared_look import SharedLook


class Looks:
    """Counts how often somebody really looked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    async def __call__(self) -> int:
        self.count += 1
        await asyncio.sleep(0.02)
        if self._error is not None:
            raise self._error
        return self.count


async def test_all_who_ask_at_a_time_share_one_look() -> None:
    shared, looks = SharedLook[int](), Looks()
    assert await asyncio.gather(*(shared(looks) for _ in range(50))) == [1] * 50
    assert await shared(looks) == 2  # what is over is over


async def test_what_was_found_stands_for_a_while() -> None:
    shared, looks = SharedLook[int](fresh_s=0.1), Looks()
    assert [await shared(looks) for _ in range(3)] == [1, 1, 1]
    await asyncio.sleep(0.12)
    assert await shared(looks) == 2


async def test_a_failure_stands_for_its_own_while() -> None:
    """Else a hiccup would be told for as long as figures that are dear are kept."""
    shared = SharedLook[int](fresh_s=60, failed_s=0)
    with pytest.raises(OSError, match="away"):
        await shared(Looks(OSError("away")))
    well = Looks()
    assert [await shared(well) for _ in range(2)] == [1, 1]
    assert well.count == 1


async def test_who_leaves_takes_the_look_from_nobody() -> None:
    shared, looks = SharedLook[int](), Looks()
    first = asyncio.create_task(shared(looks))
    second = asyncio.create_task(shared(looks))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    assert first.cancelled()


async def test_all_hear_of_a_failure() -> None:
    shared, looks = SharedLook[int](), Looks(OSError("away"))
    heard = await asyncio.gather(*(shared(looks) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in heard] == ["away"] * 3
    with pytest.raises(OSError, match="away"):
        await shared(looks)
    assert looks.count == 2
