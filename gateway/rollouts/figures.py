"""What the requests of one version came to, as far as a rollout asks."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.traffic.histograms import added, quantile, trimmed


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` ended, finished or failed; what clients cut and what was refused says nothing of a version.
    Times to the first token (`gateway/traffic/histograms.py`) are of the finished, without the load of the
    adapter, which a version pays once; apart for those that found half of their prompt or more in the prefix
    cache (`ttft_warm`), for a new version's is empty at first. `inter_token`: the mean time between tokens of
    each request, as if all were of one choice; nothing is decided on it."""

    requests: int = 0
    failed: int = 0
    not_finite: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ttft: list[int] = msgspec.field(default_factory=list)
    ttft_warm: list[int] = msgspec.field(default_factory=list)
    inter_token: list[int] = msgspec.field(default_factory=list)

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            requests=self.requests + other.requests,
            failed=self.failed + other.failed,
            not_finite=self.not_finite + other.not_finite,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            ttft=trimmed(added(self.ttft, other.ttft)),
            ttft_warm=trimmed(added(self.ttft_warm, other.ttft_warm)),
            inter_token=trimmed(added(self.inter_token, other.inter_token)),
        )

    @property
    def error_rate(self) -> float:
        return self.failed / self.requests if self.requests else 0.0

    def ttft_ms(self, part: float) -> float | None:
        """An estimate over all of them, at most 9 % off."""
        return quantile(added(self.ttft, self.ttft_warm), part)

    def inter_token_ms(self, part: float) -> float | None:
        """As `ttft_ms`."""
        return quantile(self.inter_token, part)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """`old` since the rollout began to move its alias, `new` since its present step did."""

    old: Figures = Figures()
    new: Figures = Figures()

    def __add__(self, other: Pair) -> Pair:
        return Pair(old=self.old + other.old, new=self.new + other.new)

    def row(self) -> dict[str, Any]:
        """As `rollouts.settled` and `rollouts.shown` hold it."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Pair:
        return msgspec.convert(row, cls)
