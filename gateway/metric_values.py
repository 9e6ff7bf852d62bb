"""A worker's metrics in memory, written to the file that all workers' scrapes read twice a second: a request
moves some twenty of them, and each write there costs a system call and a lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, Final

from prometheus_client import values

WRITE_S: Final = 0.5
"""What a scrape through another worker may be behind by."""

_lock = Lock()
_changed: set[Any] = set()


def keep_in_memory() -> None:
    """From now on `inc` only adds. Once, before a worker serves, and where workers share a metrics folder;
    such a process must not fork any more."""
    kind: Any = values.ValueClass
    assert kind._multiprocess, "without a metrics folder they are in memory anyway"
    kind.inc = _add


def write() -> None:
    """What was added since the last time goes to the file."""
    with _lock:
        for value in _changed:
            value._file.write_value(value._key, value._value, 0.0)
        _changed.clear()


@asynccontextmanager
async def written() -> AsyncIterator[None]:
    """While it is entered they are written all the time, and once more at its end."""
    task = asyncio.create_task(_write_for_ever(), name="write-metrics")
    try:
        yield
    finally:
        task.cancel()
        write()


async def _write_for_ever() -> None:
    while True:
        await asyncio.sleep(WRITE_S)
        write()


def _add(value: Any, amount: float) -> None:
    with _lock:
        value._value += amount
        _changed.add(value)
