"""One row: the oldest release that works with the schema as it is. A migration that takes away what older
ones need (the contract of an earlier expand) raises it."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class SchemaSupport(Base):
    __tablename__ = "schema_support"
    __table_args__ = (CheckConstraint("one_row", name="schema_support_one_row_check"),)

    one_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    oldest_release: Mapped[str]  # the newest revision that the release knows
