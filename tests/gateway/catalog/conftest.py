from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from gateway.catalog.repository import Line
from gateway.db import Database
from gateway.models import BaseModel
from gateway.principal import TenantId


@pytest.fixture
async def line(db: Database, new_tenant: Callable[[], Awaitable[TenantId]]) -> Line:
    """A fresh tenant over a fresh base."""
    base_id = uuid4().hex * 2
    async with db.system_session() as session:
        session.add(BaseModel(base_id=base_id, name=f"base-{base_id[:12]}", spec={}))
    return Line(await new_tenant(), base_id)
