"""A closed month of one tenant, rounded once. Units of 10⁻¹² of the currency. Append-only."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import ForeignKey, Numeric, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class BillingStatement(Base):
    __tablename__ = "billing_statements"
    __table_args__ = (UniqueConstraint("tenant_id", "month", name="billing_statements_month"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    month: Mapped[date] = mapped_column(ForeignKey("billing_periods.month"))
    currency: Mapped[str]
    exact: Mapped[Decimal] = mapped_column(Numeric(38, 0))
    rounded: Mapped[Decimal] = mapped_column(Numeric(38, 0))  # whole coins
    issued_at: Mapped[CreatedAt]
