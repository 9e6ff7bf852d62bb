"""Proves that an adapter loads, differs from the base, is served as it is meant, and stays finite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.disk_cache import cached_file
from adapters.prompt import PromptEncoder
from engine.config import EngineSettings
from engine.core.protocol import AdapterRef
from engine.proofs.checks import BaseSide, dense_check, differs_check, finite_check, plain, unrest
from engine.proofs.dense_child import DenseChild, DenseLost
from engine.proofs.dense_wire import DenseAnswer, DenseOrder
from engine.proofs.judge import Told
from engine.proofs.longest import LongestRuns, rank_class
from engine.proofs.probes import Probes
from engine.proofs.replica import Fault, NotFinite, ReplicaCalls
from engine.proofs.report import Check, CheckName, Report
from engine.server.core_client import CoreClient
from engine.server.errors import EngineError, unavailable

FINITE_TOKENS = 512
"""Of the prompt that is read where norms alone can't say that everything stays finite."""
LEAST_UNREST = 1e-6  # of a base that rounding does not move
CORE_LOST = "core_lost"
"""The code of a proof within which the core ended."""
LEAVES_AT_MOST = 2
"""Times that the adapter's file may be gone before the dense twin has read it."""


@dataclass(slots=True)
class _Proof:
    """One under way."""

    adapter: AdapterRef
    calls: ReplicaCalls
    began: float = field(default_factory=time.monotonic)
    tier: str = ""
    load_ms: float = 0.0
    checks: list[Check] = field(default_factory=list)


class Prover:
    """At most `proofs` proofs at a time, and one an owner. Lives in the server's event loop."""

    def __init__(self, settings: EngineSettings, client: CoreClient, encoder: PromptEncoder) -> None:
        self._settings = settings
        self._client = client
        self._encoder = encoder
        self._dense = DenseChild(settings)
        self._longest = LongestRuns(settings.cache_dir)
        self._probes: Probes | None = None
        self._base: BaseSide | None = None
        self._unrest: float | None = None  # the base's, once an adapter needed it
        self._base_turn = asyncio.Lock()
        self._under_way: dict[str, asyncio.Task[Report]] = {}  # by owner
        self._stopped = False

    async def prove(self, adapter: AdapterRef, *, longest: bool) -> Report:
        """The verdict. Raises 503 with a code where there is none; cancelling it frees everything."""
        self._client.check_serving()
        if self._stopped:
            raise _draining()
        if adapter.owner in self._under_way or len(self._under_way) >= self._settings.proofs:
            raise unavailable("The replica proves as many adapters as it may.", "replica_busy", 1.0)
        task = asyncio.create_task(self._within_limit(adapter, longest=longest))
        self._under_way[adapter.owner] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._stopped and task.cancelled():
                raise (_draining() if self._client.failure is None else _core_lost()) from None
            raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del self._under_way[adapter.owner]

    def stop(self) -> None:
        """Ends the proofs under way, without a verdict; begins none."""
        self._stopped = True
        for task in self._under_way.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await self._dense.close()

    async def _within_limit(self, adapter: AdapterRef, *, longest: bool) -> Report:
        proof = _Proof(adapter, ReplicaCalls(self._client, adapter.owner))
        try:
            async with asyncio.timeout(self._settings.proof_timeout_s):
                await self._run(proof, longest=longest)
                return self._report(proof)
        except TimeoutError:
            limit = f"{self._settings.proof_timeout_s:.0f} s"
            raise unavailable(f"The proof did not end within {limit}.", "proof_timeout", 30.0) from None
        except DenseLost as error:
            raise unavailable(f"The dense twin failed: {error}", "proof_failed", 5.0) from error
        except EngineError as error:
            if self._client.failure is None:
                raise
            raise _core_lost() from error

    async def _run(self, proof: _Proof, *, longest: bool) -> None:
        """Adds checks until one fails."""
        if not await self._loads(proof):
            return
        base = await self._base_side(proof)
        try:
            served = await proof.calls.logprobs(proof.adapter, base.prompts)
        except NotFinite:
            self._not_finite(proof, CheckName.FINITE, sum(map(len, base.prompts)))
            return
        proof.checks.append(differs_check(base, served))
        twin = await self._twin(proof, base.prompts, served)
        proof.checks.append(await self._dense_check(proof, base, served, twin))
        if await self._finite(proof, twin) and all(check.passed for check in proof.checks):
            await self._at_longest(proof, twin.max_rank, is_asked=longest)

    async def _loads(self, proof: _Proof) -> bool:
        try:
            loaded = await proof.calls.load(proof.adapter, self._settings.proof_timeout_s)
        except Fault as fault:
            proof.checks.append(plain(CheckName.LOADS, passed=False, message=str(fault)))
            return False
        proof.tier, proof.load_ms = loaded.tier.value, loaded.load_ms
        took = f"{loaded.load_ms:.1f} ms"
        message = (
            f"Loaded from {proof.tier} in {took}."
            if loaded.is_fresh
            else f"Here already ({proof.tier}); its load took {took}."
        )
        proof.checks.append(plain(CheckName.LOADS, passed=True, message=message))
        return True

    async def _base_side(self, proof: _Proof) -> BaseSide:
        """Computed once in the life of this process, which serves one base in one way."""
        async with self._base_turn:
            if self._base is None:
                prompts = (await self._texts()).prompts
                calls = ReplicaCalls(self._client, owner="")
                try:
                    served = await calls.logprobs(None, prompts)
                finally:
                    proof.calls.run_ms += calls.run_ms
                answer = await self._dense.answer(_order(None, prompts, served))
                if answer.error:
                    raise DenseLost(answer.error)
                self._base = BaseSide.of(prompts, served, answer.logprobs)
            return self._base

    async def _twin(
        self,
        proof: _Proof,
        prompts: Sequence[Sequence[int]],
        served: Sequence[Told],
        *,
        shaken: bool = False,
    ) -> DenseAnswer:
        adapter = proof.adapter
        path = cached_file(self._settings.cache_dir, adapter.owner, adapter.artefact)
        for _ in range(LEAVES_AT_MOST):
            answer = await self._dense.answer(_order(str(path), prompts, served, shaken=shaken))
            if not answer.error:
                return answer
            if not answer.missing:
                raise DenseLost(answer.error)
            await proof.calls.load(adapter, self._settings.proof_timeout_s)
        raise unavailable("The adapter's file leaves the disk before it is read.", "replica_busy", 5.0)

    async def _dense_check(
        self, proof: _Proof, base: BaseSide, served: Sequence[Told], twin: DenseAnswer
    ) -> Check:
        """One that fails by the base's yardstick is looked at by its own."""
        check = dense_check(base, served, twin.logprobs)
        if check.passed:
            return check
        shaken = await self._twin(proof, base.prompts, served, shaken=True)
        own = unrest(served, twin.logprobs, shaken.logprobs)
        return dense_check(base, served, twin.logprobs, own / await self._base_unrest(base))

    async def _base_unrest(self, base: BaseSide) -> float:
        async with self._base_turn:
            if self._unrest is None:
                answer = await self._dense.answer(_order(None, base.prompts, base.served, shaken=True))
                if answer.error:
                    raise DenseLost(answer.error)
                self._unrest = max(LEAST_UNREST, unrest(base.served, base.dense, answer.logprobs))
            return self._unrest

    async def _finite(self, proof: _Proof, twin: DenseAnswer) -> bool:
        check = finite_check(twin.ceiling)
        if not check.passed:  # norms can't say, so it is tried
            tokens = (await self._texts()).passage(min(FINITE_TOKENS, self._client.core.max_model_len - 1))
            return await self._reads(proof, CheckName.FINITE, tokens)
        proof.checks.append(check)
        return True

    async def _at_longest(self, proof: _Proof, max_rank: int, *, is_asked: bool) -> None:
        """Where nobody asked, it is done once for each class of ranks, while the replica has time for it."""
        base_digest, ranks = self._client.core.base_digest, rank_class(max_rank)
        is_due = self._settings.proof_longest == "once" and not self._longest.knows(base_digest, ranks)
        if not is_asked and not (is_due and self._is_quiet()):
            return
        tokens = (await self._texts()).passage(self._client.core.max_model_len - 1)
        limit_s = None if is_asked else self._settings.proof_timeout_s / 2
        try:
            async with asyncio.timeout(limit_s):
                if await self._reads(proof, CheckName.FINITE_LONGEST, tokens):
                    await asyncio.to_thread(self._longest.note, base_digest, ranks)
        except TimeoutError:
            return  # a later proof does it

    async def _reads(self, proof: _Proof, name: CheckName, tokens: list[int]) -> bool:
        try:
            await proof.calls.read(proof.adapter, tokens)
        except NotFinite:
            self._not_finite(proof, name, len(tokens))
            return False
        message = f"No NaN and no infinity in {len(tokens)} tokens."
        proof.checks.append(plain(name, passed=True, message=message))
        return True

    def _not_finite(self, proof: _Proof, name: CheckName, num_tokens: int) -> None:
        message = f"NaN or infinity within {num_tokens} tokens: its values overflow when they are computed."
        proof.checks.append(plain(name, passed=False, message=message))

    def _is_quiet(self) -> bool:
        """Whether nobody's request would meet a prompt of the longest kind."""
        stats = self._client.stats
        return stats is not None and stats.running == 0 and self._client.num_open_of_others == 0

    async def _texts(self) -> Probes:
        if self._probes is None:
            self._probes = await asyncio.to_thread(Probes.of, self._encoder)
        return self._probes

    def _report(self, proof: _Proof) -> Report:
        return Report(
            artefact=proof.adapter.artefact,
            base_digest=self._client.core.base_digest,
            passed=all(check.passed for check in proof.checks),
            checks=proof.checks,
            load_ms=round(proof.load_ms, 3),
            tier=proof.tier,
            replica_ms=round(proof.calls.run_ms, 3),
            total_ms=round((time.monotonic() - proof.began) * 1000, 3),
        )


def _order(
    path: str | None, prompts: Sequence[Sequence[int]], served: Sequence[Told], *, shaken: bool = False
) -> DenseOrder:
    wanted = [list(position) for position in served]
    return DenseOrder(path, [list(prompt) for prompt in prompts], wanted, shaken)


def _core_lost() -> Exception:
    """Maybe the adapter's doing: others are spared it, as they need not be where the core was lost before."""
    return unavailable("The engine core failed within the proof.", CORE_LOST, 60.0)


def _draining() -> Exception:
    return unavailable("The engine is shutting down.", "replica_draining")
