"""A proof's own requests to the core: batch class, purpose `proof`, greedy, and in nobody's way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from adapters.wire import MAX_TOP_LOGPROBS
from engine.core.protocol import (
    AdapterRef,
    AddRequest,
    Ended,
    Outcome,
    Purpose,
    Sampling,
    ServiceClass,
    Tier,
    TokenLogprob,
    Tokens,
)
from engine.proofs.judge import Told, told
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError, unavailable

T = TypeVar("T")

MOST_EVICTIONS = 3
"""Times that an adapter may leave between its load and its use before the replica counts as too busy."""


class Fault(Exception):
    """The adapter's own: no replica like this one could load it. One sentence says why."""


class NotFinite(Exception):
    """A row of the request held NaN or infinity."""


@dataclass(frozen=True, slots=True)
class Loaded:
    tier: Tier  # where it was
    load_ms: float  # of the last load
    is_fresh: bool  # it was loaded just now


@dataclass(slots=True)
class ReplicaCalls:
    """Those of one proof; `run_ms` is what they took of the engine's steps so far."""

    client: CoreClient
    owner: str
    run_ms: float = 0.0

    async def load(self, adapter: AdapterRef, within_s: float) -> Loaded:
        """Has it loaded as a hint would: behind what requests wait for. Raises `Fault`, or 503."""
        for _ in range(MOST_EVICTIONS):
            came = self.client.when_adapter(adapter.artefact)
            self.client.prefetch(adapter, round(within_s * 1000))
            event = await came
            if event.is_fault:
                raise Fault(event.error)
            if event.error:
                raise unavailable(event.error, "adapter_unavailable", 5.0)
            if event.tier is not None:
                return Loaded(event.found_in or event.tier, event.load_ms, event.found_in is not None)
        raise _busy("The adapter left before it could be used.")

    async def logprobs(self, adapter: AdapterRef | None, prompts: Sequence[Sequence[int]]) -> list[Told]:
        """What is told at each position of each prompt, of the token after it. Raises `NotFinite`, or 503."""
        answers = await _all([self._run(adapter, prompt, with_logprobs=True) for prompt in prompts])
        return [told(position) for answer in answers for position in answer]

    async def read(self, adapter: AdapterRef, prompt: Sequence[int]) -> None:
        """Computes the prompt and a token. Raises `NotFinite`, or 503."""
        await self._run(adapter, prompt, with_logprobs=False)

    async def _run(
        self, adapter: AdapterRef | None, prompt: Sequence[int], *, with_logprobs: bool
    ) -> list[TokenLogprob]:
        attempt = self.client.submit(self._add(adapter, prompt, with_logprobs=with_logprobs))
        found: list[TokenLogprob] = []
        try:
            while True:
                for frame in await attempt.take():
                    match frame:
                        case Tokens():
                            prompt_part = frame.prompt_logprobs or []
                            found += [each for each in (*prompt_part, *(frame.logprobs or ())) if each]
                        case Ended():
                            self.run_ms += frame.run_ms
                            self._check(frame)
                            return found
        finally:
            attempt.leave()
            self.client.abort(attempt)

    def _add(self, adapter: AdapterRef | None, prompt: Sequence[int], *, with_logprobs: bool) -> AddRequest:
        return AddRequest(
            request=f"proof-{uuid.uuid4()}",
            attempt=1,
            tenant=self.owner,
            key="",
            adapter=adapter,
            version="",
            salt="",
            prompt=list(prompt),
            sampling=Sampling(
                max_tokens=1,
                seed=0,
                temperature=0.0,
                ignore_eos=True,
                logprobs=MAX_TOP_LOGPROBS if with_logprobs else None,
                prompt_logprobs=with_logprobs,
            ),
            purpose=Purpose.PROOF,
            service_class=ServiceClass.BATCH,
        )

    def _check(self, ended: Ended) -> None:
        if ended.not_finite:
            raise NotFinite
        match ended.outcome:
            case Outcome.FINISHED:
                return
            case Outcome.ADAPTER_FAILED:
                raise unavailable(ended.reason, "adapter_unavailable", 5.0)
            case Outcome.REFUSED:
                raise _busy(ended.reason)
            case _:
                code = "replica_draining" if self.client.draining else "replica_failed"
                raise unavailable(ended.reason or "The engine ended the proof.", code)


def _busy(message: str) -> EngineError:
    return unavailable(message, "replica_busy", 5.0)


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    """All of them, or the first failure; none goes on after that."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
