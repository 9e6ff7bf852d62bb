"""UUIDv7 by RFC 9562, and growing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import RFC_4122

import pytest

from gateway.ids import Uuid7Source, time_of, uuid7


def test_version_variant_and_time() -> None:
    made = uuid7()
    assert (made.version, made.variant) == (7, RFC_4122)
    assert abs((datetime.now(UTC) - time_of(made)).total_seconds()) < 1


def test_ids_grow_also_within_one_millisecond() -> None:
    ids = [uuid7() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Uuid7Source()
    first = source()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert source() > first
