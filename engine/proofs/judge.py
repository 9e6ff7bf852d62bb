"""What log-probabilities prove: that an adapter changes the model, and that it is served as it is meant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from engine.core.protocol import TokenLogprob

LEAST_MASS: Final = 1e-9

Told = Mapping[int, float]
"""Log-probabilities of some tokens at one position: the best ones and the one that stands there."""


def told(position: TokenLogprob) -> dict[int, float]:
    return {**dict(position.top), position.token: position.logprob}


def divergence(ours: Sequence[Told], theirs: Sequence[Told]) -> float:
    """A lower bound of the mean over positions of KL(ours ‖ theirs), in nats: over the tokens that both tell
    of, and all others as one. Putting outcomes together never makes a divergence larger (Cover & Thomas,
    "Elements of Information Theory", section 2.8)."""
    return sum(map(_divergence, ours, theirs)) / len(ours)


def _divergence(ours: Told, theirs: Told) -> float:
    shared = [token for token in ours if token in theirs]
    p, q = [math.exp(ours[token]) for token in shared], [math.exp(theirs[token]) for token in shared]
    p.append(max(LEAST_MASS, 1 - sum(p)))
    q.append(max(LEAST_MASS, 1 - sum(q)))
    return max(
        0.0,
        sum(a * math.log(a / max(b, LEAST_MASS * LEAST_MASS)) for a, b in zip(p, q, strict=True) if a > 0),
    )


def distance(ours: Sequence[Told], theirs: Sequence[Told]) -> float:
    """How far log-probabilities lie from each other, in nats: the median over all tokens that both tell of, 0
    where there are none. A model is so sure at some positions that rounding moves them tenfold; a fault moves
    all."""
    distances = [
        abs(logprob - there[token])
        for here, there in zip(ours, theirs, strict=True)
        for token, logprob in here.items()
        if token in there
    ]
    return math.nan if any(map(math.isnan, distances)) else median(distances or [0.0])
