"""Nothing in the core grows with what has been: not with requests, tenants, adapters, owners or failures."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest

from engine.core.protocol import Abort, AdapterRef, AddRequest, Prefetch, Retire, ToCore
from tests.engine.core.fakes import Ask, Bench, add

LIMIT = 64
"""What the tables that remember are cut to here, and what nothing may exceed."""
COLLECTIONS = (list, tuple, set, frozenset, deque)


def sizes(root: object, without: set[int]) -> Iterator[tuple[str, int]]:
    """Every collection that can be reached from an object of the core, by its path."""
    seen = set(without)
    found = [("loop", root)]
    while found:
        path, value = found.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            yield path, len(value)
            found += [(f"{path}[]", each) for each in (*value, *value.values())]
        elif isinstance(value, COLLECTIONS):
            yield path, len(value)
            found += [(f"{path}[]", each) for each in value]
        elif type(value).__module__.startswith("engine."):
            found += [(f"{path}.{name}", each) for name, each in fields(value)]


def fields(value: object) -> Iterator[tuple[str, object]]:
    names = list(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        names += getattr(kind, "__slots__", ())
    for name in names:
        if hasattr(value, name):
            yield name, getattr(value, name)


def one_of_many(number: int, dice: random.Random) -> list[ToCore]:
    """A request of a tenant for an adapter, each of which may be new, and what else may come with it."""
    tenant = dice.choice([f"tenant-{number}", f"tenant-{dice.randrange(9)}"])
    name = dice.choice([None, f"adapter-{number}", f"adapter-{dice.randrange(9)}"])
    prompt = [dice.randint(1, 99) for _ in range(dice.randint(1, 9))]
    ask = Ask(adapter=name, tenant=tenant, max_tokens=dice.randint(1, 2))
    request: AddRequest = add(str(number), prompt, ask)
    if name is not None:
        request = msgspec.structs.replace(request, adapter=AdapterRef(name, f"owner of {name}"))
    others: list[ToCore] = [
        Abort(str(number), 1),
        Prefetch(AdapterRef(f"hint-{number}", tenant), within_ms=10),
        Retire(AdapterRef(f"gone-{number}", tenant)),
    ]
    return [request, *(frame for frame in others if dice.random() < 0.2)]


def test_nothing_grows_with_what_has_been(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "fairness.MAX_TENANTS_KNOWN",
        "adapter_history.MAX_HISTORY",
        "adapter_rates.MAX_OWNERS",
        "adapter_loads.MAX_FAILURES",
    ):
        monkeypatch.setattr(f"engine.core.{name}", LIMIT)
    bench = make_bench(num_blocks=LIMIT, max_in_flight=2, host_budget_bytes=20_000)
    bench.runner.record = False
    bench.loaders.failing = {f"adapter-{number}" for number in range(0, 2_000, 5)}
    dice = random.Random(1)
    for number in range(1_000):
        bench.send(*one_of_many(number, dice))
        bench.loop.step()
        bench.now += bench.step_s
        bench.transport.sent.clear()
    bench.run()
    others = {id(part) for part in (bench.runner, bench.loaders, bench.transport, bench.journal)}
    large = {path: size for path, size in sizes(bench.loop, others) if size > LIMIT}
    assert large == {}
    assert bench.stats().adapters.failed_loads > LIMIT, "and more came than is remembered"
