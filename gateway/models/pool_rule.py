"""Which pool of replicas a request goes to: rules in order, of one base."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class PoolRule(Base):
    __tablename__ = "pool_rules"
    __table_args__ = (
        CheckConstraint("position > 0", name="pool_rules_position_check"),
        CheckConstraint("min_prompt_tokens > 0", name="pool_rules_min_prompt_tokens_check"),
        CheckConstraint("min_answer_tokens > 0", name="pool_rules_min_answer_tokens_check"),
    )

    base_id: Mapped[str] = mapped_column(ForeignKey("bases.base_id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    pool: Mapped[str]
    fallback: Mapped[bool]
    min_prompt_tokens: Mapped[int | None]
    min_answer_tokens: Mapped[int | None]
    service_class: Mapped[str | None]
    tenant: Mapped[UUID | None]  # no reference: a rule of a tenant that is gone fits nobody
    adapter: Mapped[str | None]
