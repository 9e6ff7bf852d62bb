"""A month that is closed; a month without a row is open. Append-only."""

from __future__ import annotations

from datetime import date, datetime

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class BillingPeriod(Base):
    __tablename__ = "billing_periods"

    month: Mapped[date] = mapped_column(primary_key=True)
    complete_until: Mapped[datetime]  # when it was closed
    through_seq: Mapped[int]  # its last charge
    closed_at: Mapped[CreatedAt]
