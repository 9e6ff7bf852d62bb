"""All SQL of idempotency: what a request that runs in a dead worker's place may bill."""

from __future__ import annotations

from gateway.db import SystemWrite
from gateway.usage import repository as usage
from gateway.usage.event import UsageEvent


async def take_over(session: SystemWrite, marker: UsageEvent) -> bool:
    """Bars the attempts before `marker` from being billed; True when one of them is billed already.

    The marker waits among the uncounted attempts. The reconciler bills the last attempt it knows of and no
    other, so what it has not billed by now it never will.
    """
    await usage.decide_alone(session)
    await usage.insert_events(session, [marker])
    rows = await usage.attempts_of(session, [marker.request_id])
    return any(row.billed_prompt_tokens or row.billed_completion_tokens for row in rows)
