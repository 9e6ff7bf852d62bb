"""Secrets that we hand out: how they look, and how they are proved without being kept.

`<prefix>_<public id>_<secret>`, both parts lower-case base32: 60 bits that name the row, 256 bits that prove
the holder. What is stored is HMAC-SHA256 of the whole under a pepper that lives outside the database.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from functools import lru_cache

from litestar.types import Scope
from pydantic import SecretStr

PUBLIC_CHARACTERS = 12
SECRET_BYTES = 32
_SECRET_CHARACTERS = 52  # of base32 without padding
MIN_PEPPER_CHARACTERS = 32
MAX_HEADER_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential in clear: in memory only, shown to its owner once."""

    public_id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """Names the secret in caches; nothing can be read back from it."""
        return hashlib.sha256(self.text.encode()).digest()


@dataclass(frozen=True, slots=True)
class SecretFormat:
    """One kind of credential, told apart by its prefix."""

    prefix: str

    def mint(self) -> Secret:
        return self.renew(_base32(secrets.token_bytes(8))[:PUBLIC_CHARACTERS])

    def renew(self, public: str) -> Secret:
        """A new secret under the name of an old one."""
        return Secret(public, f"{self.prefix}_{public}_{_base32(secrets.token_bytes(SECRET_BYTES))}")

    def parse(self, text: str) -> Secret | None:
        """None for anything that can't be one, found without asking the database."""
        match = _form_of(self.prefix).fullmatch(text)
        return Secret(match[1], text) if match else None

    def from_header(self, authorization: str | None) -> Secret | None:
        """The secret of an `Authorization: Bearer …` header."""
        if authorization is None or len(authorization) > MAX_HEADER_CHARACTERS:
            return None
        scheme, _, token = authorization.partition(" ")
        return self.parse(token.strip()) if scheme.lower() == "bearer" else None


class Peppers:
    """The current pepper, and the one before it while keys move over."""

    def __init__(self, current: SecretStr, previous: SecretStr | None = None) -> None:
        values = [pepper.get_secret_value().encode() for pepper in (current, previous) if pepper is not None]
        if any(len(value) < MIN_PEPPER_CHARACTERS for value in values):
            raise ValueError(f"MOTET_PEPPER needs at least {MIN_PEPPER_CHARACTERS} characters")
        self._by_version = {_fingerprint(value): value for value in values}
        self.current_version = _fingerprint(values[0])

    def seal(self, secret: Secret) -> bytes:
        """What is stored, made with the current pepper."""
        return _hmac(self._by_version[self.current_version], secret)

    def proves(self, secret: Secret, sealed: bytes, version: str) -> bool:
        """Whether `secret` made `sealed`; False too when the pepper of `version` is gone. Takes constant
        time."""
        pepper = self._by_version.get(version)
        return hmac.compare_digest(_hmac(pepper or b"gone", secret), sealed) and pepper is not None


def authorization_of(scope: Scope) -> str | None:
    """The first `Authorization` header of a request, as it came: Litestar would decode all headers for it."""
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), None
    )


@lru_cache
def _form_of(prefix: str) -> re.Pattern[str]:
    return re.compile(
        rf"{prefix}_([a-z2-7]{{{PUBLIC_CHARACTERS}}})_[a-z2-7]{{{_SECRET_CHARACTERS}}}", re.ASCII
    )


def same_secret(given: str, wanted: str) -> bool:
    """Compared in constant time, whatever characters a header carries."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _hmac(pepper: bytes, secret: Secret) -> bytes:
    return hmac.digest(pepper, secret.text.encode(), "sha256")


def _fingerprint(pepper: bytes) -> str:
    return hashlib.sha256(b"motet pepper\0" + pepper).hexdigest()[:16]


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()
