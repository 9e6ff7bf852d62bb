"""How fast each owner may load: a token bucket of loads, and one of bytes. Who loads more slows only
itself."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.core.adapter_rules import MAX_OWNERS, AdapterRules

ROUNDING_S = 1e-9


@dataclass(slots=True)
class _Bucket:
    loads: float
    num_bytes: float  # negative after a load that was larger than what was left
    at: float


class LoadRates:
    """Owners that loaded lately. One that isn't kept has its full allowance."""

    def __init__(self, rules: AdapterRules) -> None:
        self._rules = rules
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()  # least recently charged first

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, owner: str, now: float, *, is_hint: bool = False) -> float:
        """Seconds until the owner may begin a load, 0 = now. Hints leave half of the allowance to requests.

        Bytes are charged once they are known, so a large load is paid for by the next one's wait."""
        bucket = self._buckets.get(owner)
        if bucket is None:
            return 0.0
        self._refill(bucket, now)
        rules = self._rules
        loads = 1 + (rules.load_burst / 2 if is_hint else 0.0)
        num_bytes = rules.load_burst_bytes / 2 if is_hint else 0.0
        wait_s = max(
            (min(loads, rules.load_burst) - bucket.loads) / rules.loads_per_s,
            (num_bytes - bucket.num_bytes) / rules.load_bytes_per_s,
        )
        return wait_s if wait_s > ROUNDING_S else 0.0

    def charge(self, owner: str, now: float, *, loads: int = 0, num_bytes: int = 0) -> None:
        bucket = self._buckets.get(owner)
        if bucket is None:
            self._prune(now)
            bucket = _Bucket(self._rules.load_burst, self._rules.load_burst_bytes, now)
            self._buckets[owner] = bucket
        self._buckets.move_to_end(owner)
        self._refill(bucket, now)
        bucket.loads -= loads
        bucket.num_bytes -= num_bytes

    def prune(self, now: float) -> None:
        """Forgets owners that have their full allowance again."""
        for owner, bucket in list(self._buckets.items()):
            self._refill(bucket, now)
            if bucket.loads >= self._rules.load_burst and bucket.num_bytes >= self._rules.load_burst_bytes:
                del self._buckets[owner]

    def _prune(self, now: float) -> None:
        if len(self._buckets) >= MAX_OWNERS:
            self.prune(now)
        while len(self._buckets) >= MAX_OWNERS:
            self._buckets.popitem(last=False)

    def _refill(self, bucket: _Bucket, now: float) -> None:
        passed = max(0.0, now - bucket.at)
        bucket.at = max(bucket.at, now)
        rules = self._rules
        bucket.loads = min(rules.load_burst, bucket.loads + passed * rules.loads_per_s)
        bucket.num_bytes = min(rules.load_burst_bytes, bucket.num_bytes + passed * rules.load_bytes_per_s)
