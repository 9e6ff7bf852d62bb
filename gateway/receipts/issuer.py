"""Issues receipts at the end of requests: one per worker."""

from __future__ import annotations

import msgspec

from gateway.billing.price_book.in_force import PricesInForce
from gateway.receipts.keys import ReceiptKeys
from gateway.receipts.receipt import COMMENT, HEADER
from gateway.usage.event import UsageEvent


class Issuer:
    """`price` goes before the journal, `headers` and `comment` after: a receipt is of a row that is
    durable."""

    def __init__(self, keys: ReceiptKeys, prices: PricesInForce) -> None:
        self._keys = keys
        self.prices = prices

    def price(self, event: UsageEvent) -> UsageEvent:
        """The same event with the version of the price book that holds at its end, where that is known."""
        version = self.prices.version_at(event.ended_at)
        return event if version is None else msgspec.structs.replace(event, price_book_version=version)

    def headers(self, event: UsageEvent | None) -> dict[str, str]:
        """Of an answer in one piece; none for what has no row of its own."""
        return {} if event is None else {HEADER: self._keys.sign(event)}

    def comment(self, event: UsageEvent | None) -> bytes:
        """A frame of a stream that clients ignore (WHATWG HTML, 9.2.6: a line that begins with a colon)."""
        return b"" if event is None else COMMENT + self._keys.sign(event).encode() + b"\n\n"
