"""Money that a tenant, or one of its keys, may spend in a day or month (UTC)."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import CheckConstraint, Numeric, SmallInteger, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef, UpdatedAt


class BudgetRow(Base):
    __tablename__ = "budgets"
    __table_args__ = (
        CheckConstraint("period in ('day', 'month')", name="budgets_period"),
        CheckConstraint("amount > 0", name="budgets_amount"),
    )

    tenant_id: Mapped[TenantRef] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(primary_key=True)  # '' = the whole tenant
    period: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[Decimal] = mapped_column(Numeric(38, 0))  # units of 10⁻¹² of the currency
    hard: Mapped[bool] = mapped_column(server_default=text("true"))  # false: it only tells
    thresholds: Mapped[list[int]] = mapped_column(
        ARRAY(SmallInteger), server_default=text("'{50,80,100}'")
    )  # per cent at which it tells
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
