"""What a store answered, and how it is said to the client: headers, and a 429 that explains itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gateway.billing.money import amount_text, units_of
from gateway.errors import RateLimited
from gateway.limits.amounts import Meter, Tokens
from gateway.limits.asks import Answer, Left
from gateway.limits.levels import Bucket, Counter, Lease
from gateway.refusal import Refusal as Told

LEASE_RETRY_S: Final = 1.0
"""When a place at a concurrency limit comes free can't be known; this is when asking again makes sense."""

Limit = Bucket | Lease | Counter


def rate_headers(buckets: Sequence[Bucket], left: Sequence[Left]) -> dict[str, str]:
    """`x-ratelimit-*` in OpenAI's form: of each meter, the bucket with the least left, as one atomic step
    left it. Nothing where no limit is set."""
    least: dict[Meter, tuple[Bucket, Left]] = {}
    for bucket, state in zip(buckets, left, strict=True):
        known = least.get(bucket.meter)
        if known is None or state.remaining < known[1].remaining:
            least[bucket.meter] = (bucket, state)
    found = {}
    for meter, (bucket, state) in least.items():
        name = _HEADER[meter]
        found[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
        found[f"x-ratelimit-remaining-{name}"] = str(state.remaining)
        found[f"x-ratelimit-reset-{name}"] = duration(state.reset_us)
    return found


_HEADER: Final = {
    Meter.REQUESTS: "requests",
    Meter.TOKENS: "tokens",
    Meter.INPUT: "input-tokens",
    Meter.OUTPUT: "output-tokens",
}


@dataclass(frozen=True, slots=True)
class Need:
    """What the refused call asked for."""

    tokens: Tokens
    money: int = 0  # units of 10⁻¹²

    def of(self, limit: Limit) -> int | str:
        """Money as a text, all else a number."""
        match limit:
            case Bucket():
                return self.tokens.of(limit.meter)
            case Lease():
                return 1
            case Counter():
                return amount_text(self.money)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One limit that was met."""

    limit: Limit
    needed: int | str
    available: int | str
    retry_after_s: float
    refill_at: datetime | None  # when the same call would pass; None where nobody can know

    @classmethod
    def of(cls, limits: Sequence[Limit], answer: Answer, need: Need) -> Refusal:
        limit = limits[answer.which]
        now = datetime.now(UTC)
        match limit:
            case Bucket():
                after_s = answer.wait_us / 1e6
                at: datetime | None = now + timedelta(seconds=after_s)
            case Lease():
                after_s, at = LEASE_RETRY_S, None
            case Counter():
                after_s, at = max(1.0, (limit.end - now).total_seconds()), limit.end
        available = amount_text(answer.available) if isinstance(limit, Counter) else answer.available
        return cls(limit, need.of(limit), available, after_s, at)

    def details(self) -> dict[str, Any]:
        """The object `limit` within the error."""
        limit = self.limit
        return {
            "limit_id": limit.id,
            "level": limit.level.value,
            "limit": amount_text(limit.limit) if isinstance(limit, Counter) else limit.limit,
            "needed": self.needed,
            "available": self.available,
            "retry_after_ms": max(1, round(self.retry_after_s * 1000 + 0.5)),
            "refill_at": None if self.refill_at is None else f"{self.refill_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        }

    def error(self, headers: dict[str, str]) -> RateLimited:
        """The 429. An SDK must not repeat what was refused for money."""
        error = self._error(headers)
        error.refusal = Told(self.limit.id, *map(_number, (self.limit.limit, self.needed, self.available)))
        return error

    def _error(self, headers: dict[str, str]) -> RateLimited:
        limit, details = self.limit, self.details()
        if isinstance(limit, Counter):
            return RateLimited(
                f"The budget of this {limit.level} for this {limit.period} is spent: "
                f"limit {details['limit']}, needed {self.needed}, available {self.available}. "
                f"It begins again at {details['refill_at']}.",
                retry_after_s=self.retry_after_s,
                code="insufficient_quota",
                headers={**headers, "x-should-retry": "false"},
                kind="insufficient_quota",
                details={"limit": details},
            )
        what = "requests at a time" if isinstance(limit, Lease) else f"{_WORDS[limit.meter]} per minute"
        return RateLimited(
            f"Rate limit reached for {what} of this {limit.level}: limit {limit.limit}, "
            f"needed {self.needed}, available {self.available}. "
            f"Please try again in {duration(round(self.retry_after_s * 1e6))}.",
            retry_after_s=self.retry_after_s,
            headers=headers,
            details={"limit": details},
        )


def _number(amount: int | str) -> int:
    """Money as units of 10⁻¹², as far as a column holds them."""
    return min(units_of(amount) if isinstance(amount, str) else amount, 2**63 - 1)


_WORDS: Final = {
    Meter.REQUESTS: "requests",
    Meter.TOKENS: "tokens",
    Meter.INPUT: "input tokens",
    Meter.OUTPUT: "output tokens",
}


def limits_of(*lists: Iterable[Limit]) -> list[Limit]:
    """In the order in which a store numbers them."""
    return [each for one in lists for each in one]


def duration(microseconds: int) -> str:
    """A span as Go and OpenAI write it: `12ms`, `1.5s`, `6m0s`. Rounded up, so that waiting it out
    suffices."""
    milliseconds = -(-microseconds // 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
