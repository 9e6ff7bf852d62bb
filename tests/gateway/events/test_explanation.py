"""What is said of limits that the walk of these tests does not meet."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gateway.events.event import Outcome
from gateway.events.explanation import sentence
from gateway.models import RequestEvent
from gateway.principal import TenantId
from tests.gateway.events.making import make_event

REFUSED: dict[str, Any] = {"outcome": Outcome.REFUSED, "status": 429, "at_step": "limits"}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"refused_by": "tenant.budget_month", "refused_limit": 5 * 10**12, "refused_needed": 2 * 10**11},
            "The budget of this tenant for its month is 5: needed 0.2, available unknown.",
        ),
        (
            {"refused_by": "adapter.output_tokens_per_minute", "refused_limit": 1000, "refused_available": 3},
            "This adapter's limit is 1,000 output tokens a minute: needed unknown, available 3.",
        ),
        ({"refused_by": "moon.phase"}, "This moon's limit is unknown phase"),
        ({"retry_after_ms": 1500}, "It was told to come back after 1.5 s"),
    ],
)
def test_a_limit_is_told_in_its_unit(facts: dict[str, Any], said: str) -> None:
    event = make_event(TenantId(uuid4()), **REFUSED | facts)
    assert said in sentence(RequestEvent(**msgspec.structs.asdict(event)))
