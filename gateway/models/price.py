"""A row of one price book version. Prices are units of 10⁻¹² of the currency a token. Append-only."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class Price(Base):
    __tablename__ = "prices"
    __table_args__ = (Index("prices_version", "version"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(ForeignKey("price_book_versions.version"))
    model_kind: Mapped[str]  # base | any_adapter | adapter
    base_id: Mapped[str | None]  # null = any base
    owner_id: Mapped[UUID | None]  # of the adapter, for model_kind `adapter`
    adapter_name: Mapped[str | None]
    service_class: Mapped[str | None]  # null = any class
    input: Mapped[int]
    cached_input: Mapped[int]
    output: Mapped[int]
    answer_input: Mapped[int]  # of an answer out of the response cache
    answer_output: Mapped[int]
