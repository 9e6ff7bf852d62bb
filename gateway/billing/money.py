"""Money as whole units of 10⁻¹² of the currency, and never a float.

A price has at most six decimals per million tokens, so one token costs a whole number of units and an amount
is a product of integers: nothing is rounded until a statement is (`round_half_up`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

UNITS: Final = 10**12
"""Units in one of the currency."""

TOKENS_PRICED: Final = 1_000_000
"""Prices are stated for this many tokens."""

PRICE_DECIMALS: Final = 6
MAX_PRICE: Final = 10**12
"""Units a token: 1,000,000 of the currency per million tokens. Keeps amounts far from any column's end."""

_PRICE: Final = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,6})?")

EXPONENTS: Final = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI"), 0),
    **dict.fromkeys(("VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}
"""Decimals of the smallest coin (ISO 4217), where they are not 2."""


def parse_price(text: str) -> int:
    """`"0.15"` per million tokens → units a token. Raises ValueError for anything but a plain decimal of at
    most six decimals, or one over `MAX_PRICE`."""
    if not _PRICE.fullmatch(text):
        raise ValueError("a price is a decimal with at most six decimals, such as 0.15")
    whole, _, fraction = text.partition(".")
    units = int(whole) * 10**PRICE_DECIMALS + int(fraction.ljust(PRICE_DECIMALS, "0") or 0)
    if units > MAX_PRICE:
        raise ValueError("a price is at most 1000000 per million tokens")
    return units


def price_text(units_a_token: int) -> str:
    """Units a token → the price of a million tokens, with all its six decimals."""
    return _fixed(units_a_token, PRICE_DECIMALS)


def amount_text(units: int) -> str:
    """The exact amount, without an exponent and without zeros at its end: `-1.5`, `0.0000084`, `0`."""
    text = _fixed(units, 12)
    return text.rstrip("0").rstrip(".")


def units_of(amount: str) -> int:
    """The inverse of `amount_text`; exact for any size."""
    sign = -1 if amount.startswith("-") else 1
    whole, _, fraction = amount.removeprefix("-").partition(".")
    return sign * (int(whole) * UNITS + int(fraction.ljust(12, "0")))


def coins_text(units: int, currency: str) -> str:
    """An amount of whole coins, with the decimals that the currency has: `12.30`, `500` (JPY)."""
    exponent = exponent_of(currency)
    coins, rest = divmod(abs(units), 10 ** (12 - exponent))
    assert rest == 0, "only a rounded amount is told in coins"
    return _fixed(-coins if units < 0 else coins, exponent)


def exponent_of(currency: str) -> int:
    return EXPONENTS.get(currency, 2)


@dataclass(frozen=True, slots=True)
class Rounded:
    """`units` is a whole number of coins; `residue` + the exact amount = `units`."""

    units: int
    residue: int


def round_half_up(units: int, currency: str) -> Rounded:
    """To the currency's smallest coin, halves away from zero, so that a credit restores what it reverses."""
    coin = 10 ** (12 - exponent_of(currency))
    size = (abs(units) + coin // 2) // coin * coin
    rounded = -size if units < 0 else size
    return Rounded(rounded, rounded - units)


def _fixed(value: int, decimals: int) -> str:
    sign = "-" if value < 0 else ""
    digits = str(abs(value)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else f"{sign}{digits}"
