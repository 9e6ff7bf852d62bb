"""The service classes, and what each is guaranteed.

A class comes from the policy of the key, never from a body. Its weight is its guaranteed share: with all
classes waiting each gets its part of all tokens; what one doesn't ask for goes to the others, by weight.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = ("interactive", "standard", "batch")
"""Highest first; a class is known by its place in here."""

WEIGHTS: Final = (12, 6, 2)
"""With all of them waiting: 60, 30 and 10 percent of the tokens."""


def class_index(service_class: str) -> int:
    """A class's place; the database's own constraint lets no other name be stored."""
    return CLASSES.index(service_class)
