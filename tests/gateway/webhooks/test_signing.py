"""Signatures as the convention's own example has them, and one for each secret that is held."""

from __future__ import annotations

import pytest

from gateway.webhooks.signing import SECRET_BYTES, SigningSecret, signed_headers


def test_the_conventions_example() -> None:
    """The test vector of the Standard Webhooks reference libraries."""
    secret = SigningSecret.of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_replaced_both_sign() -> None:
    new, old = SigningSecret.mint(), SigningSecret.mint()
    headers = signed_headers([new, old], "id", 1, b"{}")
    assert headers["webhook-signature"].split(" ") == [new.sign(b"id.1.{}"), old.sign(b"id.1.{}")]
    assert new.sign(b"id.1.{}") != old.sign(b"id.1.{}")


def test_secrets_are_read_back_and_never_shown_by_accident() -> None:
    made = SigningSecret.mint()
    assert (SigningSecret.of(made.text), len(made.value)) == (made, SECRET_BYTES)
    assert made.text.startswith("whsec_")
    assert made.text not in repr(made)
    with pytest.raises(ValueError, match="base64"):
        SigningSecret.of("whsec_not base64!")
