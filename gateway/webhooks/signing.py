"""Signatures by the Standard Webhooks convention (standardwebhooks.com): receivers check them with a library
that they have already.

    webhook-id         the event's, the same each time it is sent
    webhook-timestamp  of this try, Unix seconds
    webhook-signature  `v1,` and the base64 of HMAC-SHA256(secret, "{id}.{timestamp}.{body}"); while a secret
                       is being replaced, one for each, with a space between
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """What an endpoint and we share. `text` is shown once, when it is made."""

    value: bytes = field(repr=False)

    @classmethod
    def mint(cls) -> SigningSecret:
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def of(cls, text: str) -> SigningSecret:
        return cls(b64decode(text.removeprefix(PREFIX), validate=True))

    @property
    def text(self) -> str:
        return PREFIX + b64encode(self.value).decode()

    def sign(self, message: bytes) -> str:
        return "v1," + b64encode(hmac.digest(self.value, message, "sha256")).decode()


def signed_headers(held: Sequence[SigningSecret], event: str, sent_at: int, body: bytes) -> dict[str, str]:
    """`held`: the current secret first."""
    message = f"{event}.{sent_at}.".encode() + body
    return {
        "webhook-id": event,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": " ".join(secret.sign(message) for secret in held),
    }
