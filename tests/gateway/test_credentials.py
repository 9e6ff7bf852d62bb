"""How secrets look, and what proves them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.credentials import Peppers, SecretFormat, same_secret

FORMAT = SecretFormat("mt")
OLD, NEW = SecretStr("old-pepper-" * 4), SecretStr("new-pepper-" * 4)


def test_a_minted_secret_is_read_back_from_its_header() -> None:
    secret = FORMAT.mint()
    for header in (f"Bearer {secret.text}", f"bearer  {secret.text} "):
        assert FORMAT.from_header(header) == secret
    assert secret.text.startswith(f"mt_{secret.public_id}_")
    assert secret.text not in repr(secret)


@given(st.text(max_size=300))
def test_what_is_no_secret_is_refused_without_raising(text: str) -> None:
    assert FORMAT.parse(text) is None
    assert FORMAT.from_header(f"Bearer {text}") is None


def test_another_kind_of_secret_is_refused() -> None:
    assert FORMAT.parse(SecretFormat("mta").mint().text) is None
    text = FORMAT.mint().text
    for wrong in (text[:-1], text + "a", text.upper(), text.replace("_", "-"), "Basic " + text):
        assert FORMAT.from_header(f"Bearer {wrong}") is None


def test_peppers_rotate() -> None:
    secret = FORMAT.mint()
    before, during, after = Peppers(OLD), Peppers(NEW, OLD), Peppers(NEW)
    sealed, version = before.seal(secret), before.current_version
    assert before.proves(secret, sealed, version)
    assert during.proves(secret, sealed, version)
    assert not after.proves(secret, sealed, version)
    assert after.proves(secret, during.seal(secret), during.current_version)
    assert not before.proves(FORMAT.mint(), sealed, version)


def test_a_short_pepper_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32"):
        Peppers(SecretStr("short"))


def test_comparing_takes_any_characters() -> None:
    assert same_secret("a", "a")
    assert not same_secret("\udcff", "a")
