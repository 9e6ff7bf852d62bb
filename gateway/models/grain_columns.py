"""What tells one line of a bucket from another, shared by rollups and charges."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Mapped


class GrainColumns:
    """Whose usage, of what, by which key, in which quarter of an hour (by the request's end)."""

    tenant_id: Mapped[UUID]
    bucket: Mapped[datetime]
    key_id: Mapped[str]
    base_id: Mapped[str]
    owner_id: Mapped[UUID | None]  # null = the base itself, here and in the next three
    adapter_name: Mapped[str | None]
    adapter_version: Mapped[int | None]
    artefact: Mapped[str | None]
    service_class: Mapped[str]
    source: Mapped[str]  # engine | cache
