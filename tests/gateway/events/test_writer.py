"""Events on their way into PostgreSQL: one that it does not take costs nobody else theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.db import Database
from gateway.events import repository
from gateway.events.recorder import Recorder
from gateway.events.writer import Writer
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.traffic.tally import Tally
from tests.gateway.events.making import make_event


async def test_an_event_that_no_column_holds_is_lost_alone(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    loud, quiet = await new_tenant(), await new_tenant()
    recorder = Recorder(Tally(uuid7()), most_a_minute=100)
    before, after = make_event(quiet), make_event(quiet)
    for event in (before, make_event(loud, refused_needed=2**64), after):
        recorder.put(event)
    await Writer(db, recorder).write_events()
    assert not recorder.ring
    async with db.tenant_reader(quiet) as session:
        kept = [await repository.one(session, quiet, event.request_id) for event in (before, after)]
    assert None not in kept
