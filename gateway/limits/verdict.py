"""What a limit script answered, and how it is said to the client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from gateway.errors import RateLimited
from gateway.refusal import Refusal

Meter = Literal["requests", "tokens"]

LEASE_RETRY_S = 1.0
"""When a place at a concurrency limit comes free can't be known; this is when asking again makes sense."""


class Level(IntEnum):
    """Which limit refused, as the scripts number them."""

    NONE = 0
    TENANT_RATE = 1
    KEY_RATE = 2
    TENANT_PARALLEL = 3
    KEY_PARALLEL = 4

    @property
    def owner(self) -> str:
        return "key" if self in (Level.KEY_RATE, Level.KEY_PARALLEL) else "tenant"

    @property
    def parallel(self) -> bool:
        return self in (Level.TENANT_PARALLEL, Level.KEY_PARALLEL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One script's answer. The bucket described is the one with the least left; `limit` 0 = there is none."""

    meter: Meter
    state: int  # 1 admitted, 0 refused, -1 the reservation had ended
    epoch: int | None  # None = Redis knows of no change
    refused_by: Level
    refused_limit: int
    available: int
    wait_us: int
    limit: int
    remaining: int
    reset_us: int

    @classmethod
    def parse(cls, meter: Meter, answer: list[int | bytes]) -> Verdict:
        state, epoch, which, refused_limit, available, wait, limit, remaining, reset = (
            int(a) for a in answer
        )
        return cls(
            meter,
            state,
            epoch if epoch >= 0 else None,
            Level(which),
            refused_limit,
            available,
            wait,
            limit,
            remaining,
            reset,
        )

    @property
    def headers(self) -> dict[str, str]:
        """`x-ratelimit-*` in OpenAI's form; empty where no limit is set."""
        if not self.limit:
            return {}
        return {
            f"x-ratelimit-limit-{self.meter}": str(self.limit),
            f"x-ratelimit-remaining-{self.meter}": str(self.remaining),
            f"x-ratelimit-reset-{self.meter}": duration(self.reset_us),
        }

    def refusal(self, needed: int, headers: dict[str, str]) -> RateLimited:
        """The 429 that says which limit, what was needed, what was left, and when to come back."""
        if self.refused_by.parallel:
            retry_s, what = LEASE_RETRY_S, "requests at a time"
        else:
            retry_s, what = self.wait_us / 1e6, f"{self.meter} per minute"
        message = (
            f"Rate limit reached for {what} of this {self.refused_by.owner}: limit {self.refused_limit}, "
            f"needed {needed}, available {self.available}. "
            f"Please try again in {duration(round(retry_s * 1e6))}."
        )
        error = RateLimited(message, retry_after_s=retry_s, headers={**headers, **self.headers})
        name = "max_parallel" if self.refused_by.parallel else f"{self.meter}_per_minute"
        by = f"{self.refused_by.owner}.{name}"
        error.refusal = Refusal(by, self.refused_limit, needed, self.available)
        return error


def duration(microseconds: int) -> str:
    """A span as Go and OpenAI write it: `12ms`, `1.5s`, `6m0s`. Rounded up, so that waiting it out
    suffices."""
    milliseconds = -(-microseconds // 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
