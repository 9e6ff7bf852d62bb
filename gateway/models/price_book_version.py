"""One edition of the price book: a whole list of prices, in force until the next. Append-only."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class PriceBookVersion(Base):
    __tablename__ = "price_book_versions"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    currency: Mapped[str]  # ISO 4217
    effective_from: Mapped[datetime]  # a quarter of an hour
    note: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]
