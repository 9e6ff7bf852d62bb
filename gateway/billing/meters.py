"""A charge as the lines that a person reads: so many tokens of a kind at a price each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Meter(StrEnum):
    """FOCUS's `SkuMeter`."""

    INPUT = "Input Tokens"
    CACHED_INPUT = "Cache Read Input Tokens"
    OUTPUT = "Output Tokens"
    ANSWER_INPUT = "Cached Answer Input Tokens"
    ANSWER_OUTPUT = "Cached Answer Output Tokens"


@dataclass(frozen=True, slots=True)
class Metered:
    """`price`: units of 10⁻¹² of the currency a token."""

    meter: Meter
    tokens: int
    price: int

    @property
    def amount(self) -> int:
        return self.tokens * self.price


def metered(source: str, tokens: tuple[int, int, int], prices: tuple[int, int, int]) -> list[Metered]:
    """`tokens` and `prices`: input, cached input, output. Lines of nothing are left out."""
    if source == "cache":
        found = [
            Metered(Meter.ANSWER_INPUT, tokens[0] + tokens[1], prices[0]),
            Metered(Meter.ANSWER_OUTPUT, tokens[2], prices[2]),
        ]
    else:
        meters = (Meter.INPUT, Meter.CACHED_INPUT, Meter.OUTPUT)
        found = [Metered(*each) for each in zip(meters, tokens, prices, strict=True)]
    return [each for each in found if each.tokens]
