"""Attempts whose replica was lost before it told its count, with what their worker knew: whether the client
had left, so whether they bill. They wait here, through any crash, until the replica's own journal tells."""

from __future__ import annotations

from gateway.models.base import Base
from gateway.models.usage_columns import UsageColumns


class UsageUncounted(UsageColumns, Base):
    __tablename__ = "usage_uncounted"
