"""Builds what issues and checks receipts."""

from __future__ import annotations

import structlog

from gateway.answers.sealing import MIN_CHARACTERS, DataKeys
from gateway.billing.price_book.in_force import PricesInForce
from gateway.config import Settings
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.receipts.issuer import Issuer
from gateway.receipts.keys import ReceiptKeys
from gateway.replicas.opening import data_keys

log = structlog.get_logger(__name__)


def receipt_keys(settings: Settings) -> ReceiptKeys:
    """Raises ValueError for a key that is too short."""
    if settings.receipt_key is None:
        return ReceiptKeys(data_keys(settings))
    try:
        return ReceiptKeys(DataKeys(settings.receipt_key, settings.receipt_key_previous))
    except ValueError as error:
        raise ValueError(f"MOTET_RECEIPT_KEY needs at least {MIN_CHARACTERS} characters") from error


async def open_issuer(settings: Settings, db: Database) -> Issuer:
    """Reads the price book's versions now, if the database answers; `prices.run` reads them from then on."""
    prices = PricesInForce()
    try:
        await prices.read(db)
    except Unavailable as error:
        log.warning("price_book_unread", reason=error.message)
    return Issuer(receipt_keys(settings), prices)
