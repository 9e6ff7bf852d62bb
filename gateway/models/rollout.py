"""A new version's way into an alias, step by step; and what happened on it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, UpdatedAt


class RolloutState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"  # goes no step further; rolls back by itself all the same
    PROMOTED = "promoted"  # the alias is the new version's
    ROLLED_BACK = "rolled_back"  # it is the old one's again
    SUPERSEDED = "superseded"  # somebody else moved the alias, and has the last word


ACTIVE: Final = (RolloutState.RUNNING, RolloutState.PAUSED)


class Rollout(Base):
    """`plan`, `settled` and `shown`: `gateway/rollouts/plan.py` and `figures.py`."""

    __tablename__ = "rollouts"
    __table_args__ = (
        UniqueConstraint("tenant_id", "id", name="rollouts_owner"),
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(
            ["adapter_id", "from_version"], ["adapter_versions.adapter_id", "adapter_versions.number"]
        ),
        ForeignKeyConstraint(
            ["adapter_id", "to_version"], ["adapter_versions.adapter_id", "adapter_versions.number"]
        ),
        CheckConstraint(
            "state in ('running', 'paused', 'promoted', 'rolled_back', 'superseded')", name="rollouts_state"
        ),
        Index(
            "rollouts_one_at_a_time",
            "adapter_id",
            "alias",
            unique=True,
            postgresql_where=text("state IN ('running', 'paused')"),
        ),
        Index("rollouts_of_adapter", "tenant_id", "adapter_id", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7: also their order
    tenant_id: Mapped[UUID]
    adapter_id: Mapped[UUID]
    alias: Mapped[str]
    from_version: Mapped[int]
    to_version: Mapped[int]
    plan: Mapped[dict[str, Any]]
    state: Mapped[str]
    step: Mapped[int] = mapped_column(server_default=text("0"))  # from 0
    accepted_step: Mapped[int | None]  # the last one whose acceptance prompts were passed
    step_began_at: Mapped[datetime | None]  # null: its weight does not hold yet
    settled_until: Mapped[datetime | None]  # up to where `settled` counts
    settled: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    shown: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    alias_revision: Mapped[int]  # as its own last move left the alias
    reason: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))  # why it ended
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    ended_at: Mapped[datetime | None]
