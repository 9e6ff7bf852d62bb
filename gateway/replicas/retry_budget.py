"""How many attempts may be repeated: a share of those that begin, so that a fault of all replicas is not
multiplied by everybody's retries (the retry budget of Finagle; Google's SRE book, "Handling Overload")."""

from __future__ import annotations

from dataclasses import dataclass

BURST = 10.0
"""Retries that may follow one another at once, and all that a quiet worker has."""


@dataclass(slots=True)
class RetryBudget:
    """One per worker. Each first attempt puts `share` of a retry in, each retry takes one out."""

    share: float
    left: float = BURST

    def deposit(self) -> None:
        self.left = min(BURST, self.left + self.share)

    def withdraw(self) -> bool:
        """Whether there was one to take."""
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True
