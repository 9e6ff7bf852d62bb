from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.money import (
    MAX_PRICE,
    UNITS,
    amount_text,
    coins_text,
    exponent_of,
    parse_price,
    price_text,
    round_half_up,
    units_of,
)

AMOUNTS = st.integers(-(10**30), 10**30)
CURRENCIES = st.sampled_from(["USD", "EUR", "JPY", "KWD", "CLF"])
PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")


@given(st.integers(0, MAX_PRICE))
def test_a_price_is_a_whole_number_of_units_a_token(units: int) -> None:
    text = price_text(units)
    assert parse_price(text) == units
    assert Fraction(text) / 1_000_000 * UNITS == units


@pytest.mark.parametrize(
    "text", ["", "1e3", "-1", "+1", "1.", ".5", "1.1234567", "0,5", " 1", "1\n", "1000000.000001", "٣", "1_0"]
)
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a price is"):
        parse_price(text)


@given(AMOUNTS)
def test_an_amounts_text_is_exact_and_plain(units: int) -> None:
    text = amount_text(units)
    assert PLAIN.fullmatch(text)
    assert units_of(text) == units
    assert Fraction(text) * UNITS == units


@given(AMOUNTS, CURRENCIES)
def test_rounding_is_to_the_nearest_coin_and_keeps_the_residue(units: int, currency: str) -> None:
    rounded = round_half_up(units, currency)
    coin = 10 ** (12 - exponent_of(currency))
    assert rounded.units % coin == 0
    assert rounded.units - rounded.residue == units
    assert abs(rounded.residue) * 2 <= coin
    assert round_half_up(-units, currency).units == -rounded.units  # a credit restores what it reverses
    assert Fraction(coins_text(rounded.units, currency)) * UNITS == rounded.units


@pytest.mark.parametrize(
    ("amount", "currency", "coins"),
    [
        ("0.005", "USD", "0.01"),
        ("0.004999999999", "USD", "0.00"),
        ("-0.005", "USD", "-0.01"),
        ("1043.834", "USD", "1043.83"),
        ("0.5", "JPY", "1"),
        ("0.0005", "KWD", "0.001"),
    ],
)
def test_halves_go_away_from_zero(amount: str, currency: str, coins: str) -> None:
    assert coins_text(round_half_up(units_of(amount), currency).units, currency) == coins


def test_the_specifications_own_example() -> None:
    """8.4 million tokens at 2.50 a million."""
    assert amount_text(8_400_000 * parse_price("2.50")) == "21"
    assert amount_text(7 * parse_price("0.0125")) == "0.0000000875"
