"""A base model that replicas hold. Everything that belongs to one carries its `base_id`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class BaseModel(Base):
    __tablename__ = "bases"

    base_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)  # what clients write as `model`
    spec: Mapped[dict[str, Any]]
    digests: Mapped[list[str] | None] = mapped_column(ARRAY(Text))  # its weights; None = none seen yet
    created_at: Mapped[CreatedAt]
