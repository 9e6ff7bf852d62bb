"""Bounded in entries and age, and forgetful by tenant."""

from __future__ import annotations

from uuid import uuid4

from gateway.api_keys.cache import TimedCache
from gateway.principal import TenantId


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_entries_age_out() -> None:
    clock = Clock()
    cache: TimedCache[int] = TimedCache(10, 5.0, clock)
    cache.put(b"a", 1)
    assert cache.get(b"a") == 1
    clock.now = 5.0
    assert cache.get(b"a") is None
    assert len(cache) == 0


def test_the_least_recently_used_goes_first() -> None:
    cache: TimedCache[int] = TimedCache(2, 5.0, Clock())
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    cache.get(b"a")
    cache.put(b"c", 3)
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (1, None, 3)


def test_a_tenant_is_forgotten_and_leaves_no_trace() -> None:
    cache: TimedCache[int] = TimedCache(10, 5.0, Clock())
    mine, theirs = TenantId(uuid4()), TenantId(uuid4())
    cache.put(b"a", 1, mine)
    cache.put(b"b", 2, mine)
    cache.put(b"c", 3, theirs)
    cache.forget(mine)
    assert [cache.get(digest) for digest in (b"a", b"b", b"c")] == [None, None, 3]
    assert set(cache._of_tenant) == {theirs}
