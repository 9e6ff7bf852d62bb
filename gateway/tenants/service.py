"""The rules of tenants."""

from __future__ import annotations

import secrets
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from gateway.audit.service import Actor, Change, record
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.limits.columns import limits_of
from gateway.models import Tenant
from gateway.principal import Admin, Limits, Principal, Scope, TenantId
from gateway.tenants import repository
from gateway.tenants.epochs import Epochs
from gateway.tenants.schemas import TenantCreate, TenantPatch

SALT_BYTES = 16


class Tenants:
    def __init__(self, db: Database, epochs: Epochs) -> None:
        self._db = db
        self._epochs = epochs

    async def create(self, actor: Actor, wanted: TenantCreate) -> Tenant:
        """Raises `Conflict` when the name is taken."""
        tenant = Tenant(
            id=uuid7(),
            name=wanted.name,
            salt=secrets.token_hex(SALT_BYTES),
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            max_parallel=wanted.max_parallel,
        )
        try:
            async with self._db.system_session() as session:
                await repository.add(session, tenant)
                record(session, actor, Change("tenant.create", wanted.name, TenantId(tenant.id)))
        except IntegrityError as error:
            raise Conflict(f"A tenant named '{wanted.name}' exists.", param="name") from error
        await self._epochs.publish(TenantId(tenant.id), tenant.epoch)
        return tenant

    async def page(self, after: UUID | None, limit: int) -> list[Tenant]:
        async with self._db.system_reader() as session:
            return await repository.page(session, after, limit)

    async def get(self, tenant: UUID) -> Tenant:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            return _existing(await repository.find(session, tenant))

    async def change(self, actor: Actor, tenant: UUID, wanted: TenantPatch) -> Tenant:
        """Limits and status; all workers act on it with the tenant's next request. Raises `NotFound`."""
        values = wanted.changes()
        if not values:
            raise BadRequest("Name at least one field to change.")
        async with self._db.system_session() as session:
            changed = _existing(await repository.change(session, tenant, values))
            record(session, actor, Change("tenant.update", changed.name, TenantId(tenant), values))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return changed

    async def principal_for(self, admin: Admin, tenant: UUID) -> Principal:
        """An operator acting for a tenant: what the tenant may see and change, never its inference.
        Raises `NotFound`."""
        row = await self.get(tenant)
        return Principal(
            tenant=TenantId(row.id),
            tenant_name=row.name,
            key_id=f"admin:{admin.email}",
            scopes=frozenset({Scope.ADAPTERS_READ, Scope.ADAPTERS_WRITE, Scope.USAGE_READ}),
            tenant_limits=limits_of(row),
            key_limits=Limits(),
            salt=row.salt,
            epoch=row.epoch,
        )


def _existing(tenant: Tenant | None) -> Tenant:
    if tenant is None:
        raise NotFound("There is no such tenant.")
    return tenant
