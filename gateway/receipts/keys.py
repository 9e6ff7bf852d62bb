"""The keys of receipts: one for each tenant, derived from the platform's, which no tenant ever gets."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.answers.sealing import DataKeys
from gateway.principal import TenantId
from gateway.receipts.receipt import Metered, Receipt, signed, unsigned

PURPOSE: Final = "receipt"
REMEMBERED: Final = 4_096
"""Tenants whose keys a process holds ready; all are let go of together, and derived again as they come."""


@dataclass(frozen=True, slots=True)
class ReceiptKey:
    """A tenant's. Who holds it can check that tenant's receipts, and could make some."""

    value: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Names it in receipts; tells nothing of it."""
        return hashlib.sha256(b"motet receipt key\0" + self.value).hexdigest()[:16]

    @property
    def text(self) -> str:
        return urlsafe_b64encode(self.value).decode().rstrip("=")

    def sign(self, row: Metered) -> str:
        return _sign(_begun(self.value), self.id, row)

    def signed(self, receipt: Receipt) -> bool:
        wanted = hmac.digest(self.value, receipt.signed, "sha256")
        return receipt.key_id == self.id and hmac.compare_digest(wanted, receipt.mac)


class ReceiptKeys:
    """Of all tenants. `sign` is on the path of every request: a line of text and one HMAC."""

    def __init__(self, keys: DataKeys) -> None:
        self._keys = keys
        self._ready: dict[TenantId, tuple[hmac.HMAC, str]] = {}

    def sign(self, row: Metered) -> str:
        """A receipt of that row under its tenant's current key."""
        tenant = TenantId(row.tenant_id)
        ready = self._ready.get(tenant)
        if ready is None:
            current = self.of(tenant)[0]
            if len(self._ready) >= REMEMBERED:
                self._ready.clear()
            ready = self._ready[tenant] = (_begun(current.value), current.id)
        return _sign(*ready, row)

    def of(self, tenant: TenantId) -> list[ReceiptKey]:
        """The current one, then the previous, where there is one."""
        return [ReceiptKey(value) for value in self._keys.derived(PURPOSE, tenant)]


def key_that_signed(receipt: Receipt, keys: Iterable[ReceiptKey]) -> ReceiptKey | None:
    return next((key for key in keys if key.signed(receipt)), None)


def _begun(value: bytes) -> hmac.HMAC:
    """With its key in and nothing else: to be copied, which is a third of beginning again."""
    return hmac.new(value, digestmod="sha256")


def _sign(begun: hmac.HMAC, key_id: str, row: Metered) -> str:
    text = unsigned(row, key_id)
    mac = begun.copy()
    mac.update(text.encode())
    return signed(text, mac.digest())
