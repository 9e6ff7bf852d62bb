"""The rules of leaving: suspended at once, purged after a grace in which it may be undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from gateway.audit.service import Actor, Change, record
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.models import Lifecycle, Offboarding, OffboardingState, PurgeStep, Tenant, TenantStatus
from gateway.principal import TenantId
from gateway.tenants import repository
from gateway.tenants.epochs import Epochs
from gateway.tenants.schemas import OffboardingIn
from gateway.tenants.service import existing, require_active


class Offboardings:
    """`purging.py` does what is asked for here."""

    def __init__(self, db: Database, epochs: Epochs, grace_h: int) -> None:
        self._db = db
        self._epochs = epochs
        self._grace_h = grace_h

    async def begin(self, actor: Actor, tenant: UUID, wanted: OffboardingIn) -> Offboarding:
        """Raises `NotFound`, `BadRequest` when its name was not typed, and `Conflict` when it is leaving."""
        grace = timedelta(hours=self._grace_h if wanted.grace_h is None else wanted.grace_h)
        async with self._db.system_session() as session:
            row = require_active(await repository.lock(session, tenant))
            if wanted.confirm != row.name:
                raise BadRequest(
                    "'confirm' must be the tenant's name.", param="confirm", code="confirmation_mismatch"
                )
            offboarding = Offboarding(
                id=uuid7(),
                tenant_id=tenant,
                state=OffboardingState.WAITING,
                requested_by=actor.name,
                reason=wanted.reason,
                status_before=row.status,
                purge_after=datetime.now(UTC) + grace,
            )
            await repository.add_offboarding(session, offboarding)
            values = {"status": TenantStatus.SUSPENDED, "lifecycle": Lifecycle.OFFBOARDING}
            changed = existing(await repository.change(session, tenant, values))
            details = {"reason": wanted.reason, "purge_after": offboarding.purge_after.isoformat()}
            record(session, actor, Change("tenant.offboard", row.name, TenantId(tenant), details))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return offboarding

    async def undo(self, actor: Actor, tenant: UUID) -> Tenant:
        """As it was before. Raises `NotFound` when it is not leaving, `Conflict` once its purge has begun."""
        async with self._db.system_session() as session:
            existing(await repository.lock(session, tenant))
            leaving = await repository.open_offboarding(session, tenant)
            if leaving is None:
                raise NotFound("This tenant is not being off-boarded.")
            if not await repository.undo_offboarding(session, leaving, actor.name):
                raise Conflict("The purge has begun; it can't be undone.", code="tenant_purging")
            values = {"status": leaving.status_before, "lifecycle": Lifecycle.ACTIVE}
            changed = existing(await repository.change(session, tenant, values))
            record(session, actor, Change("tenant.offboard_undo", changed.name, TenantId(tenant)))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return changed

    async def last(self, tenant: UUID) -> tuple[Offboarding, list[PurgeStep]]:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            found = await repository.last_offboarding(session, tenant)
        if found is None:
            raise NotFound("This tenant was never off-boarded.")
        return found
