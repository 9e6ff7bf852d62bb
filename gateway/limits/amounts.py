"""What limits count: requests, tokens by direction, and money."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from gateway.billing.money import UNITS


class Meter(StrEnum):
    """What a bucket counts a minute. The name is the last part of its key."""

    REQUESTS = "requests"
    TOKENS = "tokens"  # input + output
    INPUT = "input_tokens"
    OUTPUT = "output_tokens"


class Tokens(msgspec.Struct, frozen=True):
    input: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def of(self, meter: Meter) -> int:
        """What a bucket of this meter is asked for, or keeps in the end: the request itself is not given
        back."""
        match meter:
            case Meter.REQUESTS:
                return 1
            case Meter.TOKENS:
                return self.input + self.output
            case Meter.INPUT:
                return self.input
            case Meter.OUTPUT:
                return self.output


NO_TOKENS: Final = Tokens()


class Used(msgspec.Struct, frozen=True):
    """What a request came to. An answer out of the response cache costs money and takes no tokens."""

    input: int = 0
    output: int = 0
    cached: int = 0  # of the input
    source: str = "engine"  # engine | cache

    @property
    def tokens(self) -> Tokens:
        """What stays taken from the buckets."""
        return NO_TOKENS if self.source == "cache" else Tokens(self.input, self.output)


NOTHING: Final = Used()


def split(units: int) -> tuple[int, int]:
    """Units of 10⁻¹² as the scripts take them: whole units of the currency, and the rest. A double holds
    either exactly, so a counter is exact to the last digit."""
    return divmod(units, UNITS)


def join(whole: int, parts: int) -> int:
    return whole * UNITS + parts
