"""Wire types of receipts."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from gateway.billing.money import amount_text
from gateway.billing.price_book.service import Cost
from gateway.models import UsageLedger
from gateway.receipts.keys import ReceiptKey
from gateway.receipts.service import Receipted


class BilledOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was metered with. `amount` is exact, under the version of the price book that the
    receipt names; null with `currency` where it names none. A re-rating changes statements, not this."""

    adapter: str | None  # null = the base, as in the next two
    version: int | None
    artefact: str | None
    outcome: str
    input_tokens: int
    cached_tokens: int  # of the input's
    output_tokens: int
    tier: str | None  # where the adapter lay; null = it is not known, or no replica was asked
    price_book_version: int | None
    amount: str | None
    currency: str | None

    @classmethod
    def of(cls, row: UsageLedger, cost: Cost | None) -> BilledOut:
        return cls(
            adapter=row.adapter_name,
            version=row.adapter_version,
            artefact=row.artefact,
            outcome=row.outcome,
            input_tokens=row.billed_prompt_tokens,
            cached_tokens=row.billed_cached_tokens,
            output_tokens=row.billed_completion_tokens,
            tier=row.tier,
            price_book_version=row.price_book_version,
            amount=None if cost is None else amount_text(cost.units),
            currency=None if cost is None else cost.currency,
        )


class ReceiptOut(msgspec.Struct, frozen=True, kw_only=True):
    """`pending`: the request runs, or its row is on its way to the ledger; ask again in a second. `final`:
    the receipt is what the ledger holds, and stays as it is. `billed`: the same to read."""

    request_id: UUID
    status: Literal["final", "pending"]
    receipt: str | None
    billed: BilledOut | None

    @classmethod
    def of(cls, request_id: UUID, found: Receipted | None, cost: Cost | None) -> ReceiptOut:
        if found is None:
            return cls(request_id=request_id, status="pending", receipt=None, billed=None)
        billed = BilledOut.of(found.row, cost)
        return cls(request_id=request_id, status="final", receipt=found.text, billed=billed)


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
