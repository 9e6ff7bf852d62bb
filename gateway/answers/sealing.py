"""Tenants' data at rest: sealed with AES-256-GCM under keys that live outside of where it rests.

Each purpose and tenant has a key of its own, derived from the platform's by HKDF (RFC 5869). The name under
which something is kept is authenticated with it, so that nothing opens under another name or another
tenant's. Nonces are random; NIST SP 800-38D allows 2^32 of them a key, so years of one tenant's answers.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import OrderedDict
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

from gateway.principal import TenantId

MIN_CHARACTERS = 32
KEY_BYTES = 32
NONCE_BYTES = 12
VERSION_BYTES = 8  # of a key's fingerprint, in front of what it sealed
OVERHEAD_BYTES = VERSION_BYTES + NONCE_BYTES + 16
DERIVED_KEPT = 1_024
"""Derived keys that a process remembers; the least recently used go first."""


@dataclass(frozen=True, slots=True)
class Label:
    """What is sealed: whose, what for, and under which name it is kept."""

    purpose: str
    tenant: TenantId
    name: str

    @property
    def authenticated(self) -> bytes:
        return tagged(self.purpose, str(self.tenant), self.name)


@dataclass(slots=True)
class _Key:
    value: bytes = field(repr=False)
    derived: OrderedDict[tuple[str, TenantId], bytes] = field(default_factory=OrderedDict, repr=False)

    @property
    def version(self) -> bytes:
        return hashlib.sha256(b"motet data key\0" + self.value).digest()[:VERSION_BYTES]

    def of(self, purpose: str, tenant: TenantId) -> bytes:
        found = self.derived.get((purpose, tenant))
        if found is None:
            info = tagged("motet data", purpose, str(tenant))
            found = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self.value)
            if len(self.derived) >= DERIVED_KEPT:
                self.derived.popitem(last=False)
            self.derived[purpose, tenant] = found
        else:
            self.derived.move_to_end((purpose, tenant))
        return found


class DataKeys:
    """The current key, and the one before it while what it sealed grows old."""

    def __init__(self, current: SecretStr, previous: SecretStr | None = None) -> None:
        values = [key.get_secret_value().encode() for key in (current, previous) if key is not None]
        if any(len(value) < MIN_CHARACTERS for value in values):
            raise ValueError(f"MOTET_DATA_KEY needs at least {MIN_CHARACTERS} characters")
        keys = [_Key(value) for value in values]
        self._current = keys[0]
        self._by_version = {key.version: key for key in keys}

    def seal(self, label: Label, data: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        cipher = AESGCM(self._current.of(label.purpose, label.tenant))
        return self._current.version + nonce + cipher.encrypt(nonce, data, label.authenticated)

    def open(self, label: Label, sealed: bytes) -> bytes | None:
        """None for what was sealed by a key that is gone, under another label, or changed since."""
        key = self._by_version.get(sealed[:VERSION_BYTES])
        if key is None or len(sealed) < OVERHEAD_BYTES:
            return None
        start = VERSION_BYTES + NONCE_BYTES
        try:
            return AESGCM(key.of(label.purpose, label.tenant)).decrypt(
                sealed[VERSION_BYTES:start], sealed[start:], label.authenticated
            )
        except InvalidTag:
            return None

    def is_current(self, sealed: bytes) -> bool:
        """False for what is to be sealed again before the previous key is forgotten."""
        return sealed.startswith(self._current.version)

    def derived(self, purpose: str, tenant: TenantId) -> list[bytes]:
        """That tenant's keys for the purpose, the current one first; for what a tenant may hold itself."""
        return [key.of(purpose, tenant) for key in self._by_version.values()]

    def macs(self, purpose: str, tenant: TenantId, message: bytes) -> list[bytes]:
        """HMAC-SHA256 of `message` under the current key, and under the previous one if there is one."""
        return [hmac.digest(key.of(purpose, tenant), message, "sha256") for key in self._by_version.values()]


def tagged(*parts: str | bytes) -> bytes:
    """Parts as one text that no other parts give: each with its length."""
    raw = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in raw)
