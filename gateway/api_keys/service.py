"""The rules of API keys: made with a secret that is shown once, revoked for good."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.api_keys import repository
from gateway.api_keys.authenticator import API_KEY
from gateway.api_keys.repository import KeyFilters
from gateway.api_keys.schemas import KeyCreate
from gateway.audit.service import Actor, Change, record
from gateway.credentials import Peppers, Secret
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.models import ApiKey
from gateway.paging import ByCreation
from gateway.principal import TenantId
from gateway.tenants import epochs
from gateway.tenants.epochs import Epochs


class ApiKeys:
    def __init__(self, db: Database, peppers: Peppers, published: Epochs) -> None:
        self._db = db
        self._peppers = peppers
        self._epochs = published

    async def create(self, actor: Actor, tenant: TenantId, wanted: KeyCreate) -> tuple[ApiKey, Secret]:
        """Raises `BadRequest` for an expiry in the past, `Conflict` when the tenant has too many keys."""
        if wanted.expires_at is not None and wanted.expires_at <= datetime.now(UTC):
            raise BadRequest("'expires_at' lies in the past.", param="expires_at", code="invalid_value")
        secret = API_KEY.mint()
        key = self._row(tenant, wanted, secret)
        async with self._db.tenant_session(tenant) as session:
            if await repository.count_live(session, tenant) >= repository.MAX_KEYS:
                raise Conflict(f"A tenant has at most {repository.MAX_KEYS} keys. Revoke one first.")
            await repository.add(session, key)
            details = {"name": wanted.name, "scopes": list(key.scopes)}
            record(session, actor, Change("api_key.create", key.key_id, tenant, details))
        return key, secret

    async def page(
        self, tenant: TenantId, wanted: KeyFilters, after: ByCreation | None, limit: int
    ) -> list[ApiKey]:
        """Newest first."""
        async with self._db.tenant_reader(tenant) as session:
            return await repository.page(session, tenant, wanted, after, limit)

    async def revoke(self, actor: Actor, tenant: TenantId, key_id: str) -> ApiKey:
        """Revoked with the next request of any worker. Raises `NotFound`; revoking twice is the same as
        once."""
        async with self._db.tenant_session(tenant) as session:
            key = await repository.revoke(session, tenant, key_id)
            if key is None:
                raise NotFound("There is no such API key.")
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("api_key.revoke", key_id, tenant))
        await self._epochs.publish(tenant, epoch)
        return key

    def _row(self, tenant: TenantId, wanted: KeyCreate, secret: Secret) -> ApiKey:
        return ApiKey(
            id=uuid7(),
            tenant_id=tenant,
            key_id=secret.public_id,
            name=wanted.name,
            secret_hmac=self._peppers.seal(secret),
            pepper_version=self._peppers.current_version,
            scopes=sorted(set(wanted.scopes)),
            allowed_models=wanted.allowed_models,
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            max_parallel=wanted.max_parallel,
            expires_at=wanted.expires_at,
        )
