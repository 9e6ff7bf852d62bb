"""Builds billing's parts: those of a worker, and the jobs of the leader."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from adapters.store import open_store
from gateway.billing.charging.service import Charging, ReRatings
from gateway.billing.exports.maker import Maker
from gateway.billing.exports.service import Exports
from gateway.billing.periods.platform import Periods
from gateway.billing.periods.service import Closing
from gateway.billing.price_book.service import PriceBook
from gateway.billing.statements.service import Statements
from gateway.config import Settings
from gateway.db import Database


@dataclass(frozen=True, slots=True)
class Billing:
    """What handlers reach for."""

    price_book: PriceBook
    reratings: ReRatings
    statements: Statements
    exports: Exports
    periods: Periods


@dataclass(frozen=True, slots=True)
class BillingJobs:
    """What the leader repeats."""

    charging: Charging
    closing: Closing
    maker: Maker


def open_billing(settings: Settings, db: Database) -> Billing:
    """Raises ValueError for a store URL of an unknown form."""
    store = open_store(settings.store_url)
    return Billing(
        PriceBook(db),
        ReRatings(db),
        Statements(db),
        Exports(db, store, settings.home / "downloads", settings.billing_issuer),
        Periods(db, _grace(settings)),
    )


def open_jobs(settings: Settings, db: Database) -> BillingJobs:
    """Raises ValueError for a store URL of an unknown form."""
    maker = Maker(db, open_store(settings.store_url), settings.home / "exports", settings.billing_issuer)
    return BillingJobs(Charging(db), Closing(db, _grace(settings)), maker)


def _grace(settings: Settings) -> timedelta:
    """One for the job that closes months and for whoever is told why one is open."""
    return timedelta(hours=settings.billing_close_grace_h)
