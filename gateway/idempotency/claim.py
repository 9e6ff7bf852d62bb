"""The right to run the request of an idempotency key: held until its end, renewed meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from gateway.errors import Unavailable
from gateway.idempotency.records import Hold, Records, Standing

log = structlog.get_logger(__name__)

ATTEMPTS_EACH = 32
"""Attempts are numbered apart: those of generation g lie between (g - 1) * 32 and g * 32, neither
included."""

LOOK_S = 0.25
"""Between two looks whether a retry wants what its client left."""


@dataclass(slots=True, eq=False)
class Claim:
    """Owned by one walk, which ends it exactly once: `complete` or `release`, before its ledger row.

    `free`: an attempt of a dead owner is billed already, so this one's are not.
    """

    hold: Hold
    records: Records
    claims: Claims
    lease_s: float
    grace_s: float
    free: bool
    renewed_at: float  # loop's clock, at the start of the last call that went through
    overdue: bool = False  # another may have taken the request, and be gone by now
    forgotten: bool = False  # the record was lost while the lease held, so nobody took it
    ended: bool = False
    answered: bool = False  # by this try, for its retries to hear

    @property
    def attempts_after(self) -> int:
        """What the numbers of this try's attempts begin after."""
        return (self.hold.generation - 1) * ATTEMPTS_EACH

    async def renew(self) -> float | None:
        """The seconds since a retry asked for it, None if none did. Raises `Unavailable`."""
        began = asyncio.get_running_loop().time()
        standing, since_s = await self.records.renew(self.hold)
        self._note(standing, began)
        return since_s

    async def complete(self, sealed: bytes | None) -> bool:
        """Whether its row may be billed. `sealed` None: there is an answer, and it is not kept."""
        return await self._end(sealed, answered=True)

    async def release(self) -> bool:
        """The same for what ended without an answer."""
        return await self._end(None, answered=False)

    async def retract(self) -> None:
        """Its row could not be written, and its client hears that: no retry may hear an answer that nobody
        pays for. Never raises."""
        if not self.answered:
            return
        self.answered = False
        try:
            await self.records.retract(self.hold)
        except Unavailable as error:
            log.critical("unpaid_answer_kept", request=str(self.hold.request_id), reason=str(error))

    async def until_unwanted(self) -> None:
        """The client has left: returns once no retry has asked for `grace_s`."""
        loop = asyncio.get_running_loop()
        left_at = wanted_at = loop.time()
        pause_s = max(0.01, min(LOOK_S, self.grace_s / 4))
        while loop.time() - wanted_at < self.grace_s:
            await asyncio.sleep(min(pause_s, self.grace_s))
            try:
                since_s = await self.renew()
            except Unavailable:
                continue
            if since_s is not None:
                wanted_at = max(left_at, loop.time() - since_s)

    async def _end(self, sealed: bytes | None, *, answered: bool) -> bool:
        assert not self.ended
        self.ended = True
        self.claims.close(self)
        began = asyncio.get_running_loop().time()
        try:
            if answered:
                standing = await self.records.complete(self.hold, sealed)
            else:
                standing = await self.records.release(self.hold)
        except Unavailable as error:
            # Whoever takes the request later finds this one's row in the ledger.
            log.warning("idempotency_record_not_ended", request=str(self.hold.request_id), error=str(error))
            return not self.free
        self._note(standing, began)
        self.answered = answered and standing is Standing.OWN
        lost = standing is Standing.LOST or (standing is Standing.FORGOTTEN and self.overdue)
        return not (self.free or lost)

    def _note(self, standing: Standing, began: float) -> None:
        """The lease held without a gap if this call ended before the one before it ran out."""
        if self.forgotten:
            return
        if asyncio.get_running_loop().time() - self.renewed_at >= self.lease_s:
            self.overdue = True
        if standing is Standing.OWN:
            self.renewed_at = began
        self.forgotten = standing is Standing.FORGOTTEN and not self.overdue


@dataclass(slots=True)
class Claims:
    """Those of one worker, which renews them."""

    records: Records
    lease_s: float
    grace_s: float
    held: set[Claim] = field(default_factory=set)

    def open(self, hold: Hold, began: float, *, free: bool) -> Claim:
        claim = Claim(hold, self.records, self, self.lease_s, self.grace_s, free, began)
        self.held.add(claim)
        return claim

    def close(self, claim: Claim) -> None:
        self.held.discard(claim)

    async def run(self) -> None:
        """Renews, three times a lease, until cancelled."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            for claim in list(self.held):
                try:
                    await claim.renew()
                except Unavailable as error:
                    log.warning("idempotency_lease_not_renewed", error=str(error))
