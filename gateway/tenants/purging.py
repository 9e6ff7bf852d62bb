"""The purge of a tenant whose grace is over; a job of control's leader.

    listed    each part writes down what is there, before anything of it is deleted
    deleted   part by part
    looked    every part is listed once more; what came in meanwhile goes too
    purged    the tenant's row under a pseudonym, the proof beside it, its digest in the audit chain

Every step may be repeated: a process that dies anywhere is followed by one that comes to the same end and the
same proof. A day later everything is looked at again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from adapters.store import StoreError
from gateway.audit.service import SYSTEM, Change, record
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.models import Offboarding, OffboardingState, PurgeStep
from gateway.principal import TenantId
from gateway.tenants import purge_repository as repository
from gateway.tenants.holdings import KEPT_TABLES
from gateway.tenants.purge_parts import Part, StillThere
from gateway.tenants.service import SALT_BYTES

log = structlog.get_logger(__name__)

LOOK_AGAIN_H: Final = 24.0
LOOKS: Final = 3
"""Of one round: what keeps coming in is left to the next."""


class Purger:
    def __init__(self, db: Database, parts: Sequence[Part]) -> None:
        self._db = db
        self._parts = parts

    async def run_once(self) -> int:
        """Gives how many purges were completed. One that can't go on now holds up no other."""
        async with self._db.system_reader() as session:
            due = await repository.due(session)
        done = 0
        for offboarding in due:
            try:
                done += await self._purge(offboarding)
            except (Unavailable, StoreError) as error:
                log.warning("purge_waits", tenant=str(offboarding.tenant_id), reason=str(error))
        await self._look_again()
        return done

    async def _purge(self, offboarding: Offboarding) -> bool:
        tenant = TenantId(offboarding.tenant_id)
        if offboarding.state == OffboardingState.WAITING and not await self._begin(offboarding):
            return False  # undone in the last moment
        for part in self._parts:
            await self._list(offboarding, part)
        for part in self._parts:
            await self._delete(offboarding, part)
        looks = await self._look(tenant)
        return await self._end(offboarding, looks)

    async def _begin(self, offboarding: Offboarding) -> bool:
        async with self._db.system_session() as session:
            begun = await repository.begin(session, offboarding.id)
            if begun:
                tenant = TenantId(offboarding.tenant_id)
                record(session, SYSTEM, Change("tenant.purge_begin", str(tenant), tenant))
        return begun

    async def _list(self, offboarding: Offboarding, part: Part) -> None:
        async with self._db.system_reader() as session:
            if part.kind in await repository.steps(session, offboarding.id):
                return
        found = await part.found(TenantId(offboarding.tenant_id))
        async with self._db.system_session() as session:
            await repository.list_step(session, offboarding.id, part.kind, found.count, found.digest)

    async def _delete(self, offboarding: Offboarding, part: Part) -> None:
        async with self._db.system_reader() as session:
            step = (await repository.steps(session, offboarding.id))[part.kind]
        if step.done_at is None:
            await part.delete(TenantId(offboarding.tenant_id))
            async with self._db.system_session() as session:
                await repository.end_step(session, offboarding.id, part.kind)

    async def _look(self, tenant: TenantId) -> dict[str, int]:
        """What is left, by kind: nothing. Raises `StillThere`."""
        for _ in range(LOOKS):
            left = {part.kind: (await part.found(tenant)).count for part in self._parts}
            if not any(left.values()):
                return left
            for part in self._parts:
                if left[part.kind]:
                    await part.delete(tenant)
        raise StillThere("Things of the tenant keep coming in.")

    async def _end(self, offboarding: Offboarding, left: dict[str, int]) -> bool:
        tenant = TenantId(offboarding.tenant_id)
        async with self._db.system_session() as session:
            steps = await repository.steps(session, offboarding.id)
            proof = _proof(offboarding, steps, left, await repository.kept_rows(session, tenant))
            salt = secrets.token_hex(SALT_BYTES)
            ended = await repository.end(session, offboarding, pseudonym(tenant), salt, proof)
            if ended:
                details = {"proof": proof["digest"], "deleted": _counts(proof)}
                record(session, SYSTEM, Change("tenant.purge", str(tenant), tenant, details))
        return ended

    async def _look_again(self) -> None:
        async with self._db.system_reader() as session:
            purged = await repository.to_look_again(session, LOOK_AGAIN_H)
        for offboarding in purged:
            tenant = TenantId(offboarding.tenant_id)
            left = {part.kind: (await part.found(tenant)).count for part in self._parts}
            leftovers = {kind: count for kind, count in left.items() if count}
            if leftovers:
                log.error("purge_left_something", tenant=str(tenant), leftovers=leftovers)
                await self._look(tenant)
            async with self._db.system_session() as session:
                await repository.note_second_look(session, offboarding.id, leftovers)
                details = {"leftovers": leftovers}
                record(session, SYSTEM, Change("tenant.purge_check", str(tenant), tenant, details))


def pseudonym(tenant: TenantId) -> str:
    """The name under which what is kept of a purged tenant stands. Its old name is free again."""
    return f"purged-{hashlib.sha256(tenant.bytes).hexdigest()[:16]}"


def proof_digest(proof: dict[str, Any]) -> str:
    """SHA-256 of the proof without its own digest: JSON, keys sorted, no spaces."""
    plain = {name: value for name, value in proof.items() if name != "digest"}
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _proof(
    offboarding: Offboarding, steps: dict[str, PurgeStep], left: dict[str, int], kept: dict[str, int]
) -> dict[str, Any]:
    """Without times: the same whoever came to it, and in how many tries."""
    proof: dict[str, Any] = {
        "offboarding": str(offboarding.id),
        "tenant": str(offboarding.tenant_id),
        "deleted": [
            {"kind": kind, "found": step.found, "digest": step.digest, "remaining": left[kind]}
            for kind, step in sorted(steps.items())
            if kind in left
        ],
        "kept": [
            {"table": table, "rows": rows, "why": KEPT_TABLES[table]}
            for table, rows in sorted(kept.items())
            if rows and table not in ("audit_events",)
        ],
    }
    return {**proof, "digest": proof_digest(proof)}


def _counts(proof: dict[str, Any]) -> dict[str, int]:
    return {each["kind"]: each["found"] for each in proof["deleted"]}
