"""Events for tests that take no walk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from gateway.events.event import Outcome, RequestEvent
from gateway.ids import time_of, uuid7
from gateway.principal import TenantId


def id_at(moment: datetime) -> UUID:
    tail = 0x7 << 76 | 0b10 << 62 | uuid4().int & (1 << 62) - 1
    return UUID(int=int(moment.timestamp() * 1000) << 80 | tail)


def make_event(tenant: TenantId, *, ago: timedelta | None = None, **more: Any) -> RequestEvent:
    request_id = uuid7() if ago is None else id_at(datetime.now(UTC) - ago)
    made: dict[str, Any] = {
        "request_id": request_id,
        "tenant_id": tenant,
        "key_id": "k1",
        "endpoint": "/v1/chat/completions",
        "service_class": "standard",
        "outcome": Outcome.SERVED,
        "at_step": "end",
        "ended_at": time_of(request_id),
        "total_ms": 10.0,
        "status": 200,
        "stream": False,
        "auth_ms": 1.0,
        "queue_ms": 9.0,
    }
    return RequestEvent(**made | more)
