"""An alias over several versions, as a worker keeps it: which of them answers a request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.aliases.spread import Spread, bucket_of
from gateway.catalog.resolved import Resolved
from gateway.principal import TenantId

Sticky = Callable[[], bytes]
"""What a request is known by again; asked for where it decides something only."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """`ends` and `answers` go side by side: bucket < ends[n] is answers[n]'s."""

    seed: bytes
    ends: tuple[int, ...]
    answers: tuple[Resolved, ...]
    heaviest: Resolved

    @classmethod
    def of(cls, spread: Spread, heaviest: Resolved, others: Mapping[int, Resolved]) -> Weighted:
        """`others`: by version. What is not among them any more, `heaviest` answers for."""
        answers = tuple(others.get(version, heaviest) for _, version in spread.ranges)
        return cls(spread.seed, tuple(end for end, _ in spread.ranges), answers, heaviest)

    def choose(self, tenant: TenantId, sticky: Sticky | None) -> Resolved:
        """`tenant`: who asks; what two tenants call their users has nothing to do with each other. Without
        `sticky` (a report, which no version answers): the one that most goes to."""
        if sticky is None:
            return self.heaviest
        bucket = bucket_of(self.seed, tenant.bytes + sticky())
        return self.answers[bisect_right(self.ends, bucket)]
