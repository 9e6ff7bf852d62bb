"""Whose KV a request may find: every pair of tenant, adapter, salt and base digest tries to.

The names are chosen so that fields that were joined without a border, or taken for one another, would agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from engine.core.arrivals import Arrivals
from engine.core.prefix import extend_key, root_key
from tests.engine.core.fakes import Ask, Bench, add, expected

PROMPT = list(range(1, 22))
TENANTS, ADAPTERS, SALTS = ("t", "ta", ""), (None, "a", "t", ""), ("s", "as", "a", "")
WAYS = list(product(TENANTS, ADAPTERS, SALTS))


def is_told_another_digest(bench: Bench) -> None:
    """From here on the same pool of blocks serves requests to a base of another digest."""
    arrivals = bench.loop._arrivals
    core = replace(arrivals._core, model=replace(arrivals._core.model, base_digest="digesta"))
    bench.loop._arrivals = Arrivals(core, arrivals._open)
    bench.loop._arrivals._next_number = arrivals._next_number


def ask_each_way(bench: Bench, name: str) -> dict[tuple[str, str | None, str], int]:
    """The tokens that the prompt has from the cache for each tenant, adapter and salt, asked in turn."""
    cached = {}
    for number, (tenant, adapter, salt) in enumerate(WAYS):
        request = add(f"{name}{number}", PROMPT, Ask(tenant=tenant, adapter=adapter, salt=salt, max_tokens=2))
        bench.run(request)
        assert bench.tokens(request.request) == expected(request)
        cached[tenant, adapter, salt] = bench.ended(request.request).usage.cached
    return cached


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_kv_is_found_within_a_tenant_adapter_salt_and_digest_and_never_across(
    make_bench: Callable[..., Bench], max_in_flight: int
) -> None:
    bench = make_bench(num_blocks=1_000, max_in_flight=max_in_flight)
    assert set(ask_each_way(bench, "first").values()) == {0}
    assert set(ask_each_way(bench, "again").values()) == {20}
    is_told_another_digest(bench)
    assert set(ask_each_way(bench, "other base").values()) == {0}
    assert set(ask_each_way(bench, "other base again").values()) == {20}


def test_a_crowd_of_all_at_once_shares_no_block(make_bench: Callable[..., Bench]) -> None:
    """The runner asserts that no row reads what was written under another adapter."""
    bench = make_bench(num_blocks=1_000, max_running=64, max_in_flight=2)
    requests = [
        add(f"{number}", PROMPT, Ask(tenant=tenant, adapter=adapter, salt=salt, max_tokens=6))
        for number, (tenant, adapter, salt) in enumerate(WAYS)
    ]
    bench.run(*requests)
    assert {bench.ended(request.request).usage.cached for request in requests} == {0}
    assert all(bench.tokens(request.request) == expected(request) for request in requests)


def test_no_two_ways_have_a_name_in_common() -> None:
    ways = list(product(("d", "dt", ""), ADAPTERS, TENANTS, SALTS))
    names = {root_key(digest, adapter, tenant, salt) for digest, adapter, tenant, salt in ways}
    assert len(names) == len(ways)
    blocks = {extend_key(name, tokens) for name in names for tokens in ([1, 2], [2, 1], [258], [1, 2, 0])}
    assert len(blocks | names) == 5 * len(names)
