"""An account: an operator of the platform, or of whoever is a member of tenants."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class Admin(Base):
    __tablename__ = "admins"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)  # lower case
    password_hash: Mapped[str]  # argon2id; "" = none, and nobody logs in with it
    is_operator: Mapped[bool] = mapped_column(server_default=text("true"))
    must_change_password: Mapped[bool] = mapped_column(server_default=text("false"))
    bootstrap_hash: Mapped[str] = mapped_column(server_default=text("''"))
    """Of the password that bootstrap gave last; "" = it gave none."""
    created_at: Mapped[CreatedAt]
    disabled_at: Mapped[datetime | None]
