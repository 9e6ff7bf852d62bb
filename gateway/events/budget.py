"""How many events of one tenant are kept in a minute: all of the first, then ever fewer, so that a flood
can't fill the table, and what it was can still be seen.

In a minute and kind, the first `most` are kept whole. Of the next `most` every 2nd, of the next 2 x `most`
every 8th, of the next 4 x `most` every 32nd, and so on: in each octave half as many as in the one before, and
its first. So of any number at most 2 x `most` are kept, and one more for each octave. Each stands for itself
and for those that were left out before it. Refusals have a budget of their own: a client that is turned away
in a loop hides none of the requests that are served.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class _Seen:
    number: int = 0
    left_out: int = 0  # since the last that was kept


class Budget:
    """One per worker."""

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._minute = -1
        self._seen: dict[tuple[UUID, bool], _Seen] = {}

    def stands_for(self, minute: int, tenant: UUID, refused: bool) -> int:
        """For how many requests the next one is kept; 0: it isn't."""
        if minute != self._minute:
            self._minute = minute
            self._seen = {}
        key = (tenant, refused)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen()
        seen.number += 1
        if seen.number > self._most:
            octave = ((seen.number - 1) // self._most).bit_length()
            is_first = seen.number - 1 == self._most << (octave - 1)
            if not is_first and seen.number % (1 << (2 * octave - 1)):
                seen.left_out += 1
                return 0
        found, seen.left_out = seen.left_out + 1, 0
        return found
