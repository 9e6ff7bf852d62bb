"""What becomes of one answer besides being sent: it ends the wait of its retries, and may be given again to
whoever asks the same. Only requests that use either have one of these."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.answers.answer import Answer, Recording
from gateway.idempotency.claim import Claim
from gateway.idempotency.service import Idempotency
from gateway.inference.call import Attempt
from gateway.inference.client import EVENT_STREAM
from gateway.inference.ending import in_background, outlast
from gateway.inference.flights import Flight, Landed
from gateway.inference.relay import Relayed
from gateway.inference.response_cache import ResponseCache
from gateway.inference.response_cache_key import CacheKey
from gateway.replicas.driver import Trailer

CACHE_HEADER = "x-motet-cache"
ORIGINAL = "x-motet-original-request"


@dataclass(frozen=True, slots=True)
class _Last:
    """What is known of an answer when all of it is here."""

    streamed: bool
    content_type: str
    terminal: bytes


class Keeping:
    """Owned by one walk. `claim` and `flight` are set as soon as they are held, so that `close` lets go of
    them whatever the walk came to."""

    def __init__(self, cache: ResponseCache, idempotency: Idempotency, key: CacheKey | None) -> None:
        self._cache = cache
        self._idempotency = idempotency
        self.key = key
        self.claim: Claim | None = None
        self.flight: Flight | None = None
        self._recording: Recording | None = None
        self._last: _Last | None = None
        self._answer: Answer | None = None

    @property
    def attempts_after(self) -> int:
        return self.claim.attempts_after if self.claim is not None else 0

    @property
    def headers(self) -> dict[str, str]:
        """Of an answer that is computed."""
        found = {} if self.key is None else {CACHE_HEADER: "miss"}
        if self.claim is not None and self.claim.attempts_after:  # begun by a worker that died
            found[ORIGINAL] = str(self.claim.hold.request_id)
        return found

    def record(self, request_id: str, headers: dict[str, str]) -> None:
        """From now on the answer's bytes are taken, up to what either store keeps of one."""
        most = self._cache.bounds.entry_bytes if self.key is not None else 0
        if self.claim is not None:
            most = max(most, self._idempotency.most_bytes)
        self._recording = Recording(request_id, headers, most)

    def forgo_cache(self) -> None:
        """The answer will not be the one that the key names."""
        self.key = None
        if self.flight is not None:
            self.flight.land(Landed.NOTHING)

    def take(self, data: bytes) -> None:
        """Bytes of a stream as they go out."""
        if self._recording is not None:
            self._recording.take(data)

    def streamed(self, relayed: Relayed) -> None:
        """The stream is over, but for its terminal bytes."""
        if relayed.terminal and not relayed.told_error:
            self._last = _Last(True, EVENT_STREAM["content-type"], relayed.terminal)

    def whole(self, body: bytes, content_type: str) -> None:
        """The answer is here in one piece."""
        self.take(body)
        self._last = _Last(False, content_type, b"")

    async def settle(self, trailer: Trailer | None) -> bool:
        """Before the ledger row: what retries of the request will find. `trailer` None: it has no whole
        answer. False when its row must bill nothing, because another attempt of the request bills, or has."""
        claim, recording, last = self.claim, self._recording, self._last
        whole = False
        if trailer is not None and recording is not None and last is not None:
            whole = True
            self._answer = recording.answer(last.streamed, last.content_type, last.terminal, trailer)
        if claim is None or claim.ended:
            return True
        if not whole:
            return await claim.release()
        sealed = None if self._answer is None else self._idempotency.sealed(claim.hold, self._answer)
        return await claim.complete(sealed)

    async def given(self, answer: Answer) -> bool:
        """The same for a request that was answered from the response cache."""
        if self.claim is None or self.claim.ended:
            return True
        return await self.claim.complete(self._idempotency.sealed(self.claim.hold, answer))

    async def retract(self) -> None:
        """What `settle` or `given` left for retries is taken back: its row could not be written."""
        self._answer = None
        if self.claim is not None:
            await self.claim.retract()

    def land(self, attempt: Attempt) -> None:
        """The answer is metered: those who wait get it, and it is kept for those to come."""
        if self.key is None or self._answer is None:
            return
        if attempt.replica.view.base_digest != self.key.base_digest:
            return  # another base than the one under whose name it would be kept
        in_background(self._keep(self.key, self._answer))
        if self.flight is not None:
            self.flight.land(self._answer)

    async def _keep(self, key: CacheKey, answer: Answer) -> None:
        flight = self.flight  # open until the answer can be found without it
        try:
            await self._cache.keep(key, answer)
        finally:
            if flight is not None:
                flight.close()

    async def close(self, *, client_left: bool) -> None:
        """Lets go of what is still held. Idempotent."""
        if self.flight is not None:
            self.flight.land(Landed.LEFT if client_left else Landed.NOTHING)
        if self.claim is not None and not self.claim.ended:
            await outlast(asyncio.ensure_future(self.claim.release()))
