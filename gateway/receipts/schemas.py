"""Wire types of receipts."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from gateway.receipts.keys import ReceiptKey


class ReceiptOut(msgspec.Struct, frozen=True, kw_only=True):
    """`pending`: the request runs, or its row is on its way to the ledger; ask again in a second. `final`:
    the receipt is what the ledger holds, and stays as it is."""

    request_id: UUID
    status: Literal["final", "pending"]
    receipt: str | None


class ReceiptKeyOut(msgspec.Struct, frozen=True, kw_only=True):
    """`key`: 32 bytes in base64url, the HMAC-SHA256 key itself. Keep it as you keep an API key."""

    id: str  # as receipts name it
    key: str
    current: bool

    @classmethod
    def of(cls, key: ReceiptKey, current: bool) -> ReceiptKeyOut:
        return cls(id=key.id, key=key.text, current=current)


class ReceiptKeyList(msgspec.Struct, frozen=True):
    data: list[ReceiptKeyOut]
