"""UUIDv7: ids that sort by the time they were made (RFC 9562 §5.7; Python 3.11 has none)."""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTER_BITS = 42  # of the 74 free ones; the remaining 32 are random in every id
_WORDS = struct.Struct("512I")
_COUNTER_SEED_BITS = 41  # a fresh millisecond starts below half, so that counting on does not overflow


class Uuid7Source:
    """Ids that only ever grow within this process, also when many fall into one millisecond or the clock
    steps back."""

    def __init__(self) -> None:
        self._unix_ms = 0
        self._counter = 0
        self._random: Iterator[int] = iter(())

    def __call__(self) -> UUID:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._unix_ms:
            self._unix_ms, self._counter = now_ms, secrets.randbits(_COUNTER_SEED_BITS)
        else:
            self._counter += 1
            if self._counter >> _COUNTER_BITS:
                self._unix_ms, self._counter = self._unix_ms + 1, secrets.randbits(_COUNTER_SEED_BITS)
        return _compose(self._unix_ms, self._counter << 32 | self._random_32())

    def _random_32(self) -> int:
        """The system's, fetched for many ids at a time."""
        for number in self._random:
            return number
        self._random = iter(_WORDS.unpack(os.urandom(_WORDS.size)))
        return next(self._random)


def time_of(uuid: UUID) -> datetime:
    """When a UUIDv7 was made, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=uuid.int >> 80)


def _compose(unix_ms: int, tail: int) -> UUID:
    """48 bits of time, version 7, 12 bits, variant 0b10, 62 bits; `tail` holds those 74."""
    return UUID(int=unix_ms << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & (1 << 62) - 1)


uuid7 = Uuid7Source()
