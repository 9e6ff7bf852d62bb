"""A receiver that asks for time before the next try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from gateway.db import Database
from gateway.principal import TenantId
from gateway.webhooks.delivery import Deliveries
from gateway.webhooks.schedule import LONGEST_S
from gateway.webhooks.service import Webhooks
from tests.gateway.webhooks.conftest import MakeEndpoint, Receiver, told
from tests.gateway.webhooks.test_delivery import tell


@pytest.mark.parametrize(
    ("asked", "about_s"),
    [
        ("3600", 3600),
        (lambda: format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True), 3600),
        ("999999999999", LONGEST_S),
        ("1", 10),  # never sooner than without it
        ("-5", 10),
        ("soon, I think", 10),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 10),
    ],
)
async def test_who_asks_for_time_gets_it(
    db: Database,
    tenant: TenantId,
    receiver: Receiver,
    endpoint: MakeEndpoint,
    webhooks: Webhooks,
    deliveries: Deliveries,
    asked: str | Callable[[], str],
    about_s: float,
) -> None:
    receiver.statuses, receiver.retry_after = [503], asked if isinstance(asked, str) else asked()
    endpoint_id, _ = await endpoint()
    await tell(db, tenant)
    await deliveries.run_once()
    (waiting,) = await told(webhooks, tenant, endpoint_id)
    assert waiting.next_at is not None
    pause_s = (waiting.next_at - datetime.now(UTC)).total_seconds()
    assert about_s - 10 < pause_s < about_s + 10
