"""How fast the replicas get through what they are given, and when one that is turned away should come back.

The rate is measured: tokens of the requests that end in a second, while something waits (while nothing does,
it says how much is asked, not how much can be done). It is in the same estimated tokens as the queue, so that
estimates which are all too high cancel out. Before enough was seen there is no rate, and nobody is turned
away for a forecast.

One that is turned away gets an appointment: the time at which its tenant's line will have room, behind the
appointments that the tenant has already. Until they come, or are overdue, they count as if they waited: else
new requests would take the room that was promised, and obeying `retry-after-ms` would be in vain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import exp
from typing import Final

MEMORY_S: Final = 20.0
"""Of time with something waiting; older measurements fade."""
LEAST_SEEN: Final = 4
"""Requests that ended before there is a rate."""
LATE_S: Final = 2.0
"""An appointment that nobody keeps lapses so long after its time."""
MOST_APPOINTMENTS: Final = 1_024
"""Of one tenant and class; and tenants with any."""
LONGEST_S: Final = 120.0
"""SDKs heed no longer one: such a caller is not expected."""
CAUTION: Final = 1.25
"""Appointments lie this much further apart than the measured rate says."""


class Rate:
    """Tokens a second; `note` comes before anything changes."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._seconds = 0.0
        self._tokens = 0.0
        self._requests = 0.0
        self._seen = 0

    def note(self, now: float, *, waiting: bool) -> None:
        """Since the last call something waited, or nothing did."""
        passed = 0.0 if self._at is None else now - self._at
        if waiting and passed > 0:
            fade = exp(-passed / MEMORY_S)
            self._tokens *= fade
            self._requests *= fade
            self._seconds = self._seconds * fade + MEMORY_S * (1 - fade)
        self._at = now

    def ended(self, tokens: int) -> None:
        """A request, of so many estimated tokens, while something waits."""
        self._tokens += tokens
        self._requests += 1
        self._seen += 1

    @property
    def tokens_per_s(self) -> float:
        """0: not known."""
        if self._seen < LEAST_SEEN or self._seconds <= 0:
            return 0.0
        return self._tokens / self._seconds

    @property
    def mean_tokens(self) -> float:
        """Of one request."""
        return self._tokens / self._requests if self._requests else 0.0


@dataclass(slots=True)
class _Book:
    """A tenant's appointments in one class, in order: (time, tokens)."""

    kept: deque[tuple[float, int]] = field(default_factory=deque)
    tokens: int = 0


class Appointments:
    """Who was told to come back, and when."""

    def __init__(self) -> None:
        self._books: dict[tuple[Hashable, int], _Book] = {}
        self.items = 0

    def keep(self, tenant: Hashable, index: int, now: float) -> bool:
        """Whether a request that comes now has an appointment; it is used up by this."""
        book = self._current((tenant, index), now)
        if book is None or book.kept[0][0] > now:
            return False
        self._drop_first((tenant, index), book)
        return True

    def outstanding(self, tenant: Hashable, index: int, now: float) -> tuple[int, int]:
        """Requests and tokens of the tenant that were promised room."""
        book = self._current((tenant, index), now)
        return (len(book.kept), book.tokens) if book else (0, 0)

    def make(
        self, tenant: Hashable, index: int, now: float, *, earliest_s: float, tokens: int, rate: float
    ) -> float:
        """Seconds until the caller should come back. `rate` is the tenant's own, in tokens a second."""
        key = (tenant, index)
        book = self._current(key, now) or _Book()
        due = now + earliest_s
        if book.kept:
            due = max(due, book.kept[-1][0] + CAUTION * tokens / rate)
        known = key in self._books
        room = len(book.kept) < MOST_APPOINTMENTS if known else len(self._books) < MOST_APPOINTMENTS
        if room and due - now <= LONGEST_S:
            self._books[key] = book
            book.kept.append((due, tokens))
            book.tokens += tokens
            self.items += 1
        return due - now

    def lapse(self, now: float) -> None:
        """Drops what nobody kept. To be called now and then."""
        for key in list(self._books):
            self._current(key, now)

    def _current(self, key: tuple[Hashable, int], now: float) -> _Book | None:
        """Without what lapsed; None when nothing is left."""
        book = self._books.get(key)
        while book is not None and book.kept and book.kept[0][0] + LATE_S < now:
            self._drop_first(key, book)
        return self._books.get(key)

    def _drop_first(self, key: tuple[Hashable, int], book: _Book) -> None:
        _, tokens = book.kept.popleft()
        book.tokens -= tokens
        self.items -= 1
        if not book.kept:
            del self._books[key]
