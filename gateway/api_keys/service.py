"""The rules of API keys: made with a secret that is shown once, changed, rotated, revoked for good.

Whoever asks does so within a `Grant`: what they may give, and the keys that they may see and touch at all are
those that hold no more. Another key is to them one that isn't there: to rotate it would be to take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gateway.api_keys import repository
from gateway.api_keys.authenticator import API_KEY
from gateway.api_keys.grants import EVERYTHING, Grant, known_scopes
from gateway.api_keys.networks import parse_networks
from gateway.api_keys.repository import KeyFilters
from gateway.api_keys.schemas import KeyCreate, KeyPatch
from gateway.audit.service import Actor, Change, record
from gateway.catalog.names import is_name, is_shared_name
from gateway.credentials import Peppers, Secret
from gateway.db import Database, TenantRead, TenantWrite
from gateway.edits import require_match
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.limits.columns import budget_of, limits_of
from gateway.limits.repository import budgets_of_keys
from gateway.models import ApiKey
from gateway.moments import storable
from gateway.paging import ByCreation
from gateway.principal import Budget, TenantId
from gateway.tenants import epochs
from gateway.tenants.epochs import Epochs
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish


class ApiKeys:
    def __init__(
        self,
        db: Database,
        peppers: Peppers,
        published: Epochs,
        is_base: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._db = db
        self._peppers = peppers
        self._epochs = published
        self._is_base = is_base

    async def create(
        self, actor: Actor, tenant: TenantId, wanted: KeyCreate, *, within: Grant
    ) -> tuple[ApiKey, Secret]:
        """Raises `BadRequest` for what no key can have, `Forbidden` for more than `within`, `Conflict` when
        the tenant has too many keys."""
        values = self._checked({name: getattr(wanted, name) for name in wanted.__struct_fields__})
        secret = API_KEY.mint()
        key = ApiKey(
            id=uuid7(),
            tenant_id=tenant,
            key_id=secret.public_id,
            secret_hmac=self._peppers.seal(secret),
            pepper_version=self._peppers.current_version,
            **values,
        )
        within.require(grant_of(key))
        async with self._db.tenant_session(tenant) as session:
            await _refuse_own_prefix(session, tenant, values)
            if await repository.count_live(session, tenant) >= repository.MAX_KEYS:
                raise Conflict(f"A tenant has at most {repository.MAX_KEYS} keys. Revoke one first.")
            await repository.add(session, key)
            record(session, actor, Change("api_key.create", key.key_id, tenant, _told(values)))
            told = {"key_id": key.key_id, "name": wanted.name, "scopes": list(key.scopes)}
            await publish(session, tenant, EventKind.KEY_CREATED, told, once=f"key.created:{key.key_id}")
        return key, secret

    async def page(
        self, tenant: TenantId, wanted: KeyFilters, after: ByCreation | None, limit: int
    ) -> list[ApiKey]:
        """Newest first; who may see which, `within_reach` says."""
        async with self._db.tenant_reader(tenant) as session:
            return await repository.page(session, tenant, wanted, after, limit)

    async def within_reach(self, tenant: TenantId, found: Sequence[ApiKey], within: Grant) -> list[ApiKey]:
        """Those of them that hold no more than whoever asks."""
        async with self._db.tenant_reader(tenant) as session:
            return await _reached(session, tenant, found, within)

    async def get(self, tenant: TenantId, key_id: str, *, within: Grant) -> ApiKey:
        """Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            return await _seen(session, await repository.get(session, tenant, key_id), within)

    async def change(
        self,
        actor: Actor,
        tenant: TenantId,
        key_id: str,
        wanted: KeyPatch,
        *,
        within: Grant,
        if_match: str | None = None,
    ) -> ApiKey:
        """Felt by the next request of any worker. Raises `NotFound`, `BadRequest`, `Forbidden` for more than
        `within`, `Conflict` for a revoked key, `PreconditionFailed` for one that is not what `if_match` says.
        """
        values = self._checked(wanted.changes())
        if not values:
            raise BadRequest("Name at least one field to change.")
        async with self._db.tenant_session(tenant) as session:
            await _refuse_own_prefix(session, tenant, values)
            key = await _held(session, tenant, key_id, within)
            require_match(if_match, KeyPatch.fields_of(key))
            changed = await repository.change(session, key, values)
            within.require(grant_of(changed, (await _budgets(session, tenant, [changed], within))[key_id]))
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("api_key.update", key_id, tenant, _told(values)))
        await self._epochs.publish(tenant, epoch)
        return changed

    async def rotate(
        self, actor: Actor, tenant: TenantId, key_id: str, overlap_s: int, *, within: Grant
    ) -> tuple[ApiKey, Secret]:
        """A new secret for the same key; the old one goes on for `overlap_s` seconds.

        Raises `NotFound`, and `Conflict` for a revoked key, or while the secret before the old one still
        goes on: a key has two at most. With an overlap of 0 both end now.
        """
        now = datetime.now(UTC)
        async with self._db.tenant_session(tenant) as session:
            key = await _held(session, tenant, key_id, within)
            if overlap_s and key.previous_until is not None and key.previous_until > now:
                raise Conflict(
                    "The secret before this one is still good. End it first, or rotate with an overlap of 0.",
                    code="rotation_under_way",
                )
            secret = API_KEY.renew(key_id)
            values: dict[str, Any] = {
                "secret_hmac": self._peppers.seal(secret),
                "pepper_version": self._peppers.current_version,
                "previous_hmac": key.secret_hmac,
                "previous_pepper_version": key.pepper_version,
                "previous_until": now + timedelta(seconds=overlap_s),
                "previous_used_at": None,
                "rotated_at": now,
            }
            key = await repository.change(session, key, values)
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("api_key.rotate", key_id, tenant, {"overlap_s": overlap_s}))
            told = {"key_id": key_id, "name": key.name, "overlap_s": overlap_s}
            await publish(
                session, tenant, EventKind.KEY_ROTATED, told, once=f"key.rotated:{key_id}:{now.isoformat()}"
            )
        await self._epochs.publish(tenant, epoch)
        return key, secret

    async def end_previous(self, actor: Actor, tenant: TenantId, key_id: str, *, within: Grant) -> ApiKey:
        """The secret before the last rotation ends now, if it has not. Raises `NotFound`, and `Conflict` for
        a revoked key."""
        now = datetime.now(UTC)
        async with self._db.tenant_session(tenant) as session:
            key = await _held(session, tenant, key_id, within)
            if key.previous_until is None or key.previous_until <= now:
                return key
            key = await repository.change(session, key, {"previous_until": now})
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("api_key.end_previous", key_id, tenant))
        await self._epochs.publish(tenant, epoch)
        return key

    async def revoke(self, actor: Actor, tenant: TenantId, key_id: str, *, within: Grant) -> ApiKey:
        """Revoked with the next request of any worker. Raises `NotFound`; revoking twice is the same as
        once."""
        async with self._db.tenant_session(tenant) as session:
            key = await _seen(session, await repository.lock(session, tenant, key_id), within)
            if key.revoked_at is not None:
                return key
            key = await repository.change(session, key, {"revoked_at": datetime.now(UTC)})
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("api_key.revoke", key_id, tenant))
            told = {"key_id": key_id, "name": key.name}
            await publish(session, tenant, EventKind.KEY_REVOKED, told, once=f"key.revoked:{key_id}")
        await self._epochs.publish(tenant, epoch)
        return key

    def _checked(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Columns out of what was asked for. Raises `BadRequest`."""
        values = dict(named)
        if (expires := storable(values.get("expires_at"), "expires_at")) and expires <= datetime.now(UTC):
            raise BadRequest("'expires_at' lies in the past.", param="expires_at", code="invalid_value")
        for name in values.get("allowed_models") or ():
            if not (is_name(name) or is_shared_name(name) or self._is_base(name)):
                raise BadRequest(
                    "'allowed_models' takes bare names of adapters or bases, and owner/name of another"
                    " tenant's: no version or alias.",
                    param="allowed_models",
                    code="invalid_value",
                )
        if (networks := values.get("allowed_networks")) is not None:
            values["allowed_networks"] = parse_networks(networks).texts
        for several in ("scopes", "allowed_models"):
            if values.get(several) is not None:
                values[several] = sorted(set(values[several]))
        return values


async def _refuse_own_prefix(session: TenantRead, tenant: TenantId, values: Mapping[str, Any]) -> None:
    """A tenant's own adapters have bare names: under its own as an owner nothing would ever be found. Raises
    `BadRequest`."""
    owners = {name.partition("/")[0] for name in values.get("allowed_models") or () if "/" in name}
    if owners and await repository.tenant_name(session, tenant) in owners:
        raise BadRequest(
            "Name the tenant's own adapters without an owner.", param="allowed_models", code="invalid_value"
        )


def grant_of(key: ApiKey, budgets: tuple[Budget, ...] = ()) -> Grant:
    """What the key holds; `budgets` are its own."""
    return Grant(
        scopes=known_scopes(key.scopes),
        allowed_models=None if key.allowed_models is None else frozenset(key.allowed_models),
        service_class=key.service_class,
        allowed_networks=None if key.allowed_networks is None else parse_networks(key.allowed_networks),
        expires_at=key.expires_at,
        limits=limits_of(key),
        budgets=budgets,
    )


async def _held(session: TenantWrite, tenant: TenantId, key_id: str, within: Grant) -> ApiKey:
    """A key that may be changed, locked."""
    key = await _seen(session, await repository.lock(session, tenant, key_id), within)
    if key.revoked_at is not None:
        raise Conflict("This API key is revoked.", code="key_revoked")
    return key


async def _seen(session: TenantRead, key: ApiKey | None, within: Grant) -> ApiKey:
    if key is None or not await _reached(session, TenantId(key.tenant_id), [key], within):
        raise NotFound("There is no such API key.")
    return key


async def _reached(
    session: TenantRead, tenant: TenantId, keys: Sequence[ApiKey], within: Grant
) -> list[ApiKey]:
    budgets = await _budgets(session, tenant, keys, within)
    return [key for key in keys if _reaches(within, key, budgets[key.key_id])]


def _reaches(within: Grant, key: ApiKey, budgets: tuple[Budget, ...]) -> bool:
    """A key with a scope of a later release can do what nobody here can judge."""
    known = len(known_scopes(key.scopes)) == len(set(key.scopes))
    return within.covers(grant_of(key, budgets)) and (known or within == EVERYTHING)


async def _budgets(
    session: TenantRead, tenant: TenantId, keys: Sequence[ApiKey], within: Grant
) -> dict[str, tuple[Budget, ...]]:
    """Of each key its own; looked up only where one could be missed."""
    found: dict[str, tuple[Budget, ...]] = {key.key_id: () for key in keys}
    if within.budgets:
        for row in await budgets_of_keys(session, tenant, list(found)):
            found[row.key_id] = (*found[row.key_id], budget_of(row))
    return found


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    """For the audit log: what was named, as JSON has it."""
    told: dict[str, Any] = msgspec.to_builtins(dict(values))
    return told
