"""How many events of one tenant are kept in a minute: all of the first, then ever fewer, so that a flood
can't fill the table, and what it was can still be seen.

In a minute and kind, the first `most` are kept whole. Of the next `most` every 2nd, of the next 2 x `most`
every 8th, of the next 4 x `most` every 32nd, and so on: in each octave half as many as in the one before. So
at most 2 x `most` are kept of any number. Each says for how many it stands. Refusals have a budget of their
own: a client that is turned away in a loop hides none of the requests that are served.
"""

from __future__ import annotations

from uuid import UUID


class Budget:
    """One per worker."""

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._minute = -1
        self._seen: dict[tuple[UUID, bool], int] = {}

    def stride(self, minute: int, tenant: UUID, refused: bool) -> int:
        """For how many requests this one is kept; 0: it isn't."""
        if minute != self._minute:
            self._minute = minute
            self._seen = {}
        key = (tenant, refused)
        number = self._seen.get(key, 0)
        self._seen[key] = number + 1
        if number < self._most:
            return 1
        octave = (number // self._most).bit_length()  # 1 for [most, 2 most), 2 for [2 most, 4 most)
        stride = 1 << (2 * octave - 1)
        return stride if number % stride == 0 else 0
