"""What all tables share: how Python types become columns."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, ForeignKey, LargeBinary, Text, Uuid, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column


class Base(DeclarativeBase):
    """No relationships: a repository names each row that it reads, so nothing loads lazily."""

    type_annotation_map = {  # noqa: RUF012  read by SQLAlchemy as a plain class attribute
        str: Text,
        int: BigInteger,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
        UUID: Uuid(as_uuid=True),
        dict[str, Any]: JSONB,
    }


CreatedAt = Annotated[datetime, mapped_column(server_default=func.now())]
UpdatedAt = Annotated[datetime, mapped_column(server_default=func.now(), onupdate=func.now())]
TenantRef = Annotated[UUID, mapped_column(ForeignKey("tenants.id"))]
