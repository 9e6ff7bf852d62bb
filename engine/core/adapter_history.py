"""What is remembered of adapters whether they are here or not: how popular, how large, how slow to load."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from engine.core.adapter_rules import MAX_HISTORY
from engine.core.plan import LoadedAdapter
from engine.core.protocol import Tier

TINY = 1e-9
SHORTEST_AGE_S = 1.0
LEARNING_RATE = 0.2  # of the averages over all adapters: about the last five loads


@dataclass(slots=True)
class _Past:
    count: float = 0.0  # requests, each counting half after a half-life
    counted_at: float = 0.0
    first_at: float = 0.0
    num_bytes: int = 0  # 0 = never loaded
    num_loads: int = 0
    load_ms: float = 0.0  # of the last load
    found_in: Tier = Tier.STORE  # then


class History:
    """The last `MAX_HISTORY` adapters that somebody asked for."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._past: OrderedDict[str, _Past] = OrderedDict()
        self._mean_bytes = 0.0
        self._disk_ms_per_byte: float | None = None  # None = nothing came from disk yet

    def count_request(self, artefact: str, now: float) -> None:
        past = self._remember(artefact)
        if past.count == 0:
            past.first_at = now
        past.count = self._decayed(past, now) + 1
        past.counted_at = now

    def popularity(self, artefact: str, now: float) -> float:
        """Requests so far, each counting half after a half-life."""
        past = self._past.get(artefact)
        return 0.0 if past is None else self._decayed(past, now)

    def usual_gap_s(self, artefact: str, now: float) -> float:
        """Between two requests, at the present popularity: the time over which requests count, which is short
        for one that came lately, by their count."""
        past = self._past.get(artefact)
        if past is None or past.count == 0:
            return math.inf
        age_s = max(SHORTEST_AGE_S, now - past.first_at)
        span_s = -math.expm1(-math.log(2) * age_s / self._half_life_s) * self._half_life_s / math.log(2)
        return span_s / max(TINY, self._decayed(past, now))

    def note_load(self, artefact: str, loaded: LoadedAdapter) -> None:
        past = self._remember(artefact)
        past.num_bytes = loaded.num_bytes
        past.num_loads += 1
        past.load_ms = loaded.load_ms
        past.found_in = loaded.found_in
        self._mean_bytes = _mean(self._mean_bytes or None, loaded.num_bytes)
        if loaded.found_in is Tier.DISK:
            self._disk_ms_per_byte = _mean(self._disk_ms_per_byte, loaded.load_ms / max(1, loaded.num_bytes))

    def likely_bytes(self, artefact: str) -> int:
        """Of its next load: what it had the last time, or the mean of all; 1 if nothing was loaded yet."""
        past = self._past.get(artefact)
        known = 0 if past is None else past.num_bytes
        return max(1, known or int(self._mean_bytes))

    def reload_ms(self, artefact: str) -> float:
        """What its next load will take. One that came from the store once lies on disk now; one that came
        from there again doesn't stay on disk."""
        past = self._past.get(artefact)
        if past is None or past.num_loads == 0:
            return 0.0
        if past.found_in is Tier.STORE and past.num_loads == 1 and self._disk_ms_per_byte is not None:
            return min(past.load_ms, self._disk_ms_per_byte * past.num_bytes)
        return past.load_ms

    def _remember(self, artefact: str) -> _Past:
        past = self._past.setdefault(artefact, _Past())
        self._past.move_to_end(artefact)
        if len(self._past) > MAX_HISTORY:
            self._past.popitem(last=False)
        return past

    def _decayed(self, past: _Past, now: float) -> float:
        return past.count * math.exp2(-max(0.0, now - past.counted_at) / self._half_life_s)


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + LEARNING_RATE * (value - before)
