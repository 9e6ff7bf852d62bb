"""What usage costs: an append-only journal of differences. The charges of a line sum to the line's usage
under exactly one price; the database itself checks that the amount is the product."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID

from sqlalchemy import ForeignKey, Identity, Index, Numeric
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt
from gateway.models.grain_columns import GrainColumns


class UsageCharge(GrainColumns, Base):
    __tablename__ = "usage_charges"
    __table_args__ = (
        Index("usage_charges_bucket", "tenant_id", "bucket"),
        Index("usage_charges_month", "billed_month", "tenant_id"),
    )

    seq: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)  # in the order of commits
    version: Mapped[int] = mapped_column(ForeignKey("price_book_versions.version"))
    price_id: Mapped[UUID] = mapped_column(ForeignKey("prices.id"))
    currency: Mapped[str]
    requests: Mapped[int]  # this and the tokens may be negative
    input_tokens: Mapped[int]
    cached_tokens: Mapped[int]  # not among input_tokens
    output_tokens: Mapped[int]
    input_price: Mapped[int]
    cached_price: Mapped[int]
    output_price: Mapped[int]
    amount: Mapped[Decimal] = mapped_column(Numeric(38, 0))
    billed_month: Mapped[date]  # of the bucket, or the open one when that is closed
    rerating: Mapped[UUID | None]
    rated_at: Mapped[CreatedAt]
