"""The rules of idempotent requests.

The first request of a key runs, and holds a lease on the key's record while it does. Those that come
meanwhile wait for its answer, on whichever worker they are; those that come later hear it again, for a day.
What ended without a whole answer is not kept, whatever its status: the next request of the key runs anew.

One bill: an owner ends the record before its ledger row is written. So whoever finds a lease that ran out
knows that nothing was billed by that owner itself; it runs as a later attempt of the same request, and bars
the earlier ones from being billed (`repository.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import structlog

from gateway.answers import answer as answers
from gateway.answers.answer import Answer
from gateway.answers.sealing import DataKeys, Label, tagged
from gateway.catalog.resolved import Resolved
from gateway.db import Database
from gateway.errors import ApiError, Conflict, Timeout, Unavailable, Unprocessable, retry_headers
from gateway.idempotency import repository
from gateway.idempotency.claim import ATTEMPTS_EACH, Claim, Claims
from gateway.idempotency.metrics import REQUESTS, WAITING
from gateway.idempotency.names import record_name
from gateway.idempotency.records import Found, Hold, Records, What
from gateway.inference.ending import outlast
from gateway.principal import Principal, TenantId
from gateway.usage.event import TAKEN_OVER, UsageEvent

log = structlog.get_logger(__name__)

PURPOSE = f"idempotent {answers.FORMAT}"
DIGEST_PURPOSE = "idempotent request"
MAX_GENERATIONS = 1_000  # a ledger row's attempt is a 16-bit number
MAX_WAITING = 1_024
"""Requests of one tenant that wait in a worker for their first try."""

WAIT_S = 600.0
"""For a first try to end; OpenAI's clients give up after as long."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.25
"""Between two looks at a first try that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retryable:
    """A request with an idempotency key. `content`: what must be the same for it to be the same request."""

    principal: Principal
    key: str
    content: bytes = field(repr=False)
    request_id: UUID
    resolved: Resolved
    arrived_at: datetime


class Idempotency:
    """One per worker."""

    def __init__(
        self, records: Records, keys: DataKeys, db: Database, *, lease_s: float, grace_s: float
    ) -> None:
        self._records = records
        self._keys = keys
        self._db = db
        self._waiting: Counter[TenantId] = Counter()
        # An owner whose client left must hear of whoever waits within its grace time.
        self._longest_pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, grace_s / 4))
        self.claims = Claims(records, lease_s=lease_s, grace_s=grace_s)

    @property
    def most_bytes(self) -> int:
        """Of one answer that is kept."""
        return self._records.bounds.entry_bytes

    async def claim(self, wanted: Retryable) -> Answer | Claim:
        """The answer that its first try had, or the right to run. Waits while the first try runs.

        Raises `Unprocessable` (the key stands for another request), `Conflict` (its answer is not kept),
        `Timeout`, and `Unavailable`.
        """
        name = record_name(wanted.principal, wanted.key)
        tenant = wanted.principal.tenant
        digests = self._keys.macs(DIGEST_PURPOSE, tenant, tagged(wanted.content))
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + WAIT_S, FIRST_PAUSE_S
        while True:
            began = loop.time()
            found = await self._claim_once(wanted, name, digests)
            match found.what:
                case What.RUNNING:
                    await self._wait(tenant, min(pause_s, deadline - loop.time()))
                    pause_s = min(pause_s * 1.5, self._longest_pause_s)
                case What.NEW | What.TAKEN:
                    return await self._granted(wanted, name, found, began)
                case _:
                    return self._ended(wanted, name, found)

    def sealed(self, hold: Hold, answer: Answer) -> bytes | None:
        """None when it is too large to be kept."""
        sealed = self._keys.seal(Label(PURPOSE, hold.tenant, hold.name), answers.encode(answer))
        return sealed if len(sealed) <= self.most_bytes else None

    async def _claim_once(self, wanted: Retryable, name: str, digests: list[bytes]) -> Found:
        """A client that leaves in this moment must not leave a record behind that nobody owns."""
        tenant = wanted.principal.tenant
        claiming = asyncio.ensure_future(self._records.claim(tenant, name, digests, wanted.request_id))
        try:
            return await outlast(claiming)
        except asyncio.CancelledError:
            if not claiming.cancelled() and claiming.exception() is None:
                found = claiming.result()
                if found.what in (What.NEW, What.TAKEN) and found.request_id is not None:
                    hold = Hold(tenant, name, found.request_id, found.generation)
                    await outlast(asyncio.ensure_future(self._let_go(hold)))
            raise

    async def _wait(self, tenant: TenantId, pause_s: float) -> None:
        if pause_s <= 0:
            raise Timeout(
                "The first request with this 'Idempotency-Key' still runs.",
                code="idempotent_request_running",
                headers=retry_headers(1.0),
            )
        if self._waiting[tenant] >= MAX_WAITING:
            raise Unavailable("Too many requests wait for the first of their key.", code="queue_full")
        self._waiting[tenant] += 1
        WAITING.inc()
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            WAITING.dec()

    async def _granted(self, wanted: Retryable, name: str, found: Found, began: float) -> Claim:
        assert found.request_id is not None
        hold = Hold(wanted.principal.tenant, name, found.request_id, found.generation)
        free = False
        if found.what is What.TAKEN:
            REQUESTS.labels("taken_over").inc()
            log.warning(
                "idempotent_request_taken_over", request=str(hold.request_id), by=str(wanted.request_id)
            )
            free = await self._take_over(wanted, hold)
        else:
            REQUESTS.labels("first").inc()
        return self.claims.open(hold, began, free=free)

    async def _take_over(self, wanted: Retryable, hold: Hold) -> bool:
        if hold.generation > MAX_GENERATIONS:
            raise _not_kept("It was begun too often and never ended.")
        try:
            async with self._db.system_session() as session:
                return await repository.take_over(session, _marker(wanted, hold))
        except asyncio.CancelledError:
            await outlast(asyncio.ensure_future(self._let_go(hold)))
            raise

    async def _let_go(self, hold: Hold) -> None:
        try:
            await self._records.release(hold)
        except Unavailable:
            log.warning("idempotency_key_not_released", request=str(hold.request_id))

    def _ended(self, wanted: Retryable, name: str, found: Found) -> Answer:
        if found.what is What.OTHER:
            REQUESTS.labels("other_request").inc()
            raise Unprocessable(
                "This 'Idempotency-Key' was used with another request. Use a new key for each request.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
            )
        answer = None if found.what is What.SPENT else self._opened(wanted, name, found.sealed)
        if answer is None:
            REQUESTS.labels("not_kept").inc()
            raise _not_kept("Its answer was too large to be kept.")
        REQUESTS.labels("replayed").inc()
        return answer

    def _opened(self, wanted: Retryable, name: str, sealed: bytes) -> Answer | None:
        data = self._keys.open(Label(PURPOSE, wanted.principal.tenant, name), sealed)
        try:
            return None if data is None else answers.decode(data)
        except msgspec.MsgspecError:
            log.exception("idempotent_answer_unreadable", tenant=str(wanted.principal.tenant))
            return None


def _not_kept(why: str) -> ApiError:
    return Conflict(
        f"The request of this 'Idempotency-Key' has run already. {why} Use a new key to run it again.",
        param="Idempotency-Key",
        code="idempotent_answer_not_kept",
        headers={"x-should-retry": "false"},
    )


def _marker(wanted: Retryable, hold: Hold) -> UsageEvent:
    """An attempt that never was, between those of one generation and those of the next."""
    adapter = wanted.resolved.adapter
    return UsageEvent(
        request_id=hold.request_id,
        attempt=(hold.generation - 1) * ATTEMPTS_EACH,
        tenant_id=hold.tenant,
        key_id=wanted.principal.key_id,
        base_id=wanted.resolved.base_id,
        outcome=TAKEN_OVER,
        created_at=wanted.arrived_at,
        ended_at=datetime.now(UTC),
        adapter_name=adapter.name if adapter else None,
        adapter_version=adapter.version if adapter else None,
        artefact=adapter.artefact if adapter else None,
        owner_id=adapter.owner if adapter else None,
        counted=False,
    )
