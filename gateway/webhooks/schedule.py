"""When a delivery that failed is tried again, and when it is given up."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

FIRST_S: Final = 10.0
GROWTH: Final = 3.0
LONGEST_S: Final = 4 * 3600.0
JITTER: Final = 0.25
"""A pause is up to this part longer or shorter, so that what failed together does not come back together."""

GIVE_UP_AFTER: Final = timedelta(days=3)
DISABLE_AFTER: Final = timedelta(days=5)
"""An endpoint none of whose deliveries succeeded for so long gets no more."""


def pause_s(attempts: int, draw: random.Random, asked_s: float = 0.0) -> float:
    """After so many failed tries, from 1. `asked_s`: what the receiver asked for; it makes a pause longer, up
    to the longest, and never shorter."""
    plain = min(FIRST_S * GROWTH ** min(attempts - 1, 16), LONGEST_S)
    return max(min(asked_s, LONGEST_S), plain * draw.uniform(1 - JITTER, 1 + JITTER))
