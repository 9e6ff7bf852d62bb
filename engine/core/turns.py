"""Which adapters a step computes, where fewer fit in a step than have sequences that run.

Those with most rows go first, so that a step of few adapters is well filled. An adapter that was left out
for `patience` steps is overdue, and the overdue go before all others, longest first: with n adapters and m of
them in a step nobody waits for more than patience + ceil(n / m) steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

ROUNDS: Final = 2
"""Patience, in multiples of the steps that a plain rotation takes."""


class AdapterTurns:
    """Remembers the turns of those that run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[str, int] = {}  # the step of its last turn, or in which it came
        self._step = 0

    def choose(self, rows: Counter[str], late: Set[str] = frozenset()) -> set[str]:
        """The adapters of the next step, of those that have `rows`. One that comes `late` is
        overdue at once."""
        self._step += 1
        if len(rows) <= self._most:
            self._last.clear()
            return set(rows)
        patience = ROUNDS * -(-len(rows) // self._most)
        self._last = {
            adapter: self._last.get(adapter, self._step - (patience if adapter in late else 1))
            for adapter in rows
        }
        chosen = sorted(rows, key=lambda adapter: self._urgency(adapter, rows[adapter], patience))
        chosen = chosen[: self._most]
        self._last.update(dict.fromkeys(chosen, self._step))
        return set(chosen)

    def _urgency(self, adapter: str, num_rows: int, patience: int) -> tuple[int, int, int, str]:
        """Lower goes first."""
        last = self._last[adapter]
        is_overdue = self._step - last >= patience
        return (last if is_overdue else self._step, -num_rows, last, adapter)
