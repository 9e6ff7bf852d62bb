"""Who gets the blocks that become free: who has lacked them for too long, whatever else limits a step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.protocol import AddRequest
from tests.engine.core.fakes import Ask, Bench, add, expected


def small(number: int) -> AddRequest:
    """One of a flood."""
    return add(f"small{number}", [number % 90 + 1] * 8, Ask(adapter="a", max_tokens=10 + number * 7 % 23))


@pytest.mark.parametrize("tenant", ["tenant", "another"])
def test_a_flood_on_one_adapter_does_not_starve_a_big_request_on_another(
    make_bench: Callable[..., Bench], tenant: str
) -> None:
    """With one adapter in a step, a request that lacks blocks is in no step; it waits for them all the same.
    `tenant`: the flood's own, or one that runs nothing."""
    bench = make_bench(num_blocks=60, max_adapters_per_step=1, reserve_after_s=1.0, step_s=0.05)
    bench.runner.record = False
    bench.send(*[small(number) for number in range(5)])
    bench.step()
    big = add("big", [99] * 180, Ask(adapter="b", tenant=tenant, max_tokens=2))
    bench.send(big)
    for step in range(5, 200):
        if len(bench.loop._open) < 6:
            bench.send(small(step))
        bench.step()
    assert bench.tokens("big") == expected(big)
    bench.run()
