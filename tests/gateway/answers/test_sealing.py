"""What is sealed opens under its own label and a key that is still known, and under nothing else."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.answers.sealing import OVERHEAD_BYTES, DataKeys, Label, tagged
from gateway.principal import TenantId

OLD, NEW, OTHER = (SecretStr(text * 16) for text in ("ol", "ne", "ot"))
LABEL = Label("answers", TenantId(uuid4()), "name")


def test_it_opens_again_and_shows_nothing() -> None:
    keys = DataKeys(NEW)
    sealed = keys.seal(LABEL, b"the words of a tenant")
    assert keys.open(LABEL, sealed) == b"the words of a tenant"
    assert b"words" not in sealed
    assert len(sealed) == len(b"the words of a tenant") + OVERHEAD_BYTES
    assert keys.seal(LABEL, b"the words of a tenant") != sealed
    assert "nene" not in repr(keys)


@pytest.mark.parametrize(
    "other",
    [
        replace(LABEL, purpose="elsewhere"),
        replace(LABEL, tenant=TenantId(uuid4())),
        replace(LABEL, name="another"),
    ],
)
def test_it_opens_under_no_other_label(other: Label) -> None:
    keys = DataKeys(NEW)
    assert keys.open(other, keys.seal(LABEL, b"data")) is None


def test_the_key_before_opens_until_it_is_gone() -> None:
    sealed = DataKeys(OLD).seal(LABEL, b"data")
    assert DataKeys(NEW, OLD).open(LABEL, sealed) == b"data"
    assert DataKeys(NEW).open(LABEL, sealed) is None
    assert DataKeys(OLD).open(LABEL, DataKeys(NEW, OLD).seal(LABEL, b"data")) is None


@given(st.integers(0, OVERHEAD_BYTES + 3), st.integers(1, 255))
def test_a_changed_byte_opens_nothing(place: int, change: int) -> None:
    keys = DataKeys(NEW)
    sealed = bytearray(keys.seal(LABEL, b"data"))
    sealed[place] ^= change
    assert keys.open(LABEL, bytes(sealed)) is None
    assert keys.open(LABEL, bytes(sealed[:place])) is None


def test_macs_know_both_keys_the_current_one_first() -> None:
    both = DataKeys(NEW, OLD).macs("p", LABEL.tenant, b"m")
    assert both == [
        *DataKeys(NEW).macs("p", LABEL.tenant, b"m"),
        *DataKeys(OLD).macs("p", LABEL.tenant, b"m"),
    ]
    assert len({*both, *DataKeys(OTHER).macs("p", LABEL.tenant, b"m")}) == 3
    assert DataKeys(NEW).macs("p", TenantId(uuid4()), b"m") != both[:1]


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32 characters"):
        DataKeys(SecretStr("short"))


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_are_the_same_text(one: list[bytes], two: list[bytes]) -> None:
    assert (tagged(*one) == tagged(*two)) == (one == two)
