"""One proof from its task to what follows from it. The same code runs in the worker that took an upload and
in control's leader, which takes up what others left.

A verdict is a replica's word on the adapter, and nothing else is one: while no replica gives it, the version
waits. A lease in the task's row, renewed while the proof runs, says who is at it; only its holder concludes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import msgspec
import structlog

from gateway.catalog.lifecycle import Shelf
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.proofs import repository
from gateway.proofs.acceptance import Acceptance
from gateway.proofs.answering import Examinee, run_acceptance
from gateway.proofs.choice import choose_prover
from gateway.proofs.conclusion import Concluded, Outcome, Proof, conclude
from gateway.proofs.metrics import PROOF_SECONDS, PROOFS
from gateway.proofs.repository import Held, TaskKey
from gateway.replicas.driver import EngineVerdict, NoVerdict, UpstreamFailed
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica
from gateway.tenants.epochs import Epochs

log = structlog.get_logger(__name__)

LEASE: Final = timedelta(seconds=30)
RENEW_S: Final = 10.0
AGAIN_S: Final = (0.1, 0.4)
"""Before all replicas are asked again; random, so that those who wait don't return at once."""
PAUSE_S: Final = 2.0
MOST_PAUSE_S: Final = 300.0
MOST_UNSERVED_PAUSE_S: Final = 30.0
"""While no replica is there: to look costs little."""
BROKEN_PAUSE_S: Final = 60.0
MOST_BROKEN_PAUSE_S: Final = 3_600.0
"""After a replica broke off within a proof: it may be the adapter's doing, so others are spared it."""
NO_REPLICA, BROKE_OFF = "no_replica", "replica_broke_off"


class Prover:
    """One per process that proves. `registry` is that process's."""

    def __init__(
        self, database: Database, epochs: Epochs, shelf: Shelf, registry: Registry, base_id: str
    ) -> None:
        self._database = database
        self._epochs = epochs
        self._shelf = shelf
        self._registry = registry
        self._proving: Counter[str] = Counter()
        self.base_id = base_id

    async def prove(self, key: TaskKey, holder: UUID | None = None, patience_s: float = 0.0) -> Outcome:
        """Takes the task and sees it through. `holder`: under whom it is held already. `patience_s`: how long
        replicas that are busy are asked again before it is put off. Raises `Unavailable`."""
        async with self._database.tenant_session(key.tenant) as session:
            held = await repository.take(session, key, holder or uuid4(), LEASE)
        if held is None:
            return Outcome.LOST
        began = time.monotonic()
        outcome = await self._prove(held, patience_s)
        PROOFS.labels(outcome.value).inc()
        PROOF_SECONDS.observe(time.monotonic() - began)
        return outcome

    async def _prove(self, held: Held, patience_s: float) -> Outcome:
        try:
            async with self._renewed(held):
                proof = await self._find(held, patience_s)
                return await self._conclude(held, proof)
        except NoVerdict as error:
            await self._put_off(held, error.code, broken=False)
        except UpstreamFailed as error:
            log.warning("proof_broke_off", version=held.label, reason=str(error))
            await self._put_off(held, BROKE_OFF, broken=error.blames)
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(held))
            raise
        return Outcome.PUT_OFF

    async def _find(self, held: Held, patience_s: float) -> Proof:
        replica, verdict = await self._ask(held, patience_s)
        result = None
        if verdict.passed and held.acceptance is not None:
            who = Examinee(held.key.tenant, held.artefact, held.label, held.salt)
            result = await run_acceptance(replica, who, msgspec.convert(held.acceptance, Acceptance))
        return Proof(verdict, replica.url, result)

    async def _ask(self, held: Held, patience_s: float) -> tuple[Replica, EngineVerdict]:
        """Asks one after the other until one has a verdict. Raises `NoVerdict` when none has,
        `UpstreamFailed` when one broke off."""
        until = time.monotonic() + patience_s
        tried: list[Replica] = []
        why = NoVerdict(NO_REPLICA, "no replica can prove it now")
        while True:
            able = [replica for replica in self._registry.all if replica not in tried]
            replica = choose_prover(able, held.artefact, held.key.base_digest, self._proving)
            if replica is None:
                if not tried or time.monotonic() >= until:
                    raise why
                tried.clear()
                await asyncio.sleep(random.uniform(*AGAIN_S))  # noqa: S311  jitter, not a secret
                continue
            try:
                return replica, await self._ask_one(replica, held)
            except NoVerdict as error:
                log.info("no_verdict", version=held.label, url=replica.url, code=error.code)
                why = error
            except UpstreamFailed as error:
                if error.sent:
                    raise
            tried.append(replica)

    async def _ask_one(self, replica: Replica, held: Held) -> EngineVerdict:
        self._proving[replica.url] += 1
        try:
            verdict = await replica.driver.prove(held.artefact, str(held.key.tenant), held.longest)
        finally:
            self._proving[replica.url] -= 1
        if verdict.artefact != held.artefact:
            raise NoVerdict("other_artefact", "it proved another artefact")
        expected = held.key.base_digest or replica.view.base_digest
        if expected is not None and verdict.base_digest != expected:
            raise NoVerdict("other_weights", f"it holds other weights, {verdict.base_digest[:16]}")
        return verdict

    async def _conclude(self, held: Held, proof: Proof) -> Outcome:
        tenant = held.key.tenant
        async with self._database.tenant_session(tenant) as session:
            done: Concluded = await conclude(session, held, proof)
        if done.epoch is not None:
            await self._epochs.publish(tenant, done.epoch)
        if done.drops_bytes:
            await self._shelf.clear(tenant, [held.artefact])
        elif done.outcome is Outcome.READY:
            self._shelf.hints.prefetch(tenant, held.artefact)
        log.info("proved", version=held.label, tenant=str(tenant), outcome=done.outcome, reason=proof.reason)
        return done.outcome

    async def _put_off(self, held: Held, code: str, *, broken: bool) -> None:
        least, most = (BROKEN_PAUSE_S, MOST_BROKEN_PAUSE_S) if broken else (PAUSE_S, MOST_PAUSE_S)
        if code == NO_REPLICA:
            most = MOST_UNSERVED_PAUSE_S
        pause = timedelta(seconds=min(least * 2 ** min(held.tries, 30), most))
        async with self._database.tenant_session(held.key.tenant) as session:
            await repository.put_off(session, held, code, pause, tried=True)

    async def _let_go(self, held: Held) -> None:
        """By a process that stops: another may begin at once. A lease that can't be given back runs out."""
        try:
            async with self._database.tenant_session(held.key.tenant) as session:
                await repository.put_off(session, held, "prover_stopped", timedelta(), tried=False)
        except Unavailable as error:
            log.warning("proof_not_let_go", version=held.label, reason=error.message)

    @asynccontextmanager
    async def _renewed(self, held: Held) -> AsyncIterator[None]:
        """Its lease, while the block runs."""
        renewing = asyncio.create_task(self._renew(held))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})

    async def _renew(self, held: Held) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                async with self._database.tenant_session(held.key.tenant) as session:
                    if not await repository.renew(session, held, LEASE):
                        return  # whoever has it now concludes
            except Unavailable as error:
                log.warning("proof_not_renewed", version=held.label, reason=error.message)
