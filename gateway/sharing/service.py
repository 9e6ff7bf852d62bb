"""The rules of shares: an operator lets other tenants use an adapter, which they never see more of than that
it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.audit.service import Actor
from gateway.catalog.lifecycle import adapter_not_found
from gateway.catalog.names import is_name, parse_model
from gateway.catalog.policy import Action, may
from gateway.db import Database, SystemWrite, TenantRead
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.models import Adapter, AdapterShare, Tenant
from gateway.principal import Principal, TenantId
from gateway.sharing import repository
from gateway.sharing.repository import SharedAdapter
from gateway.sharing.schemas import EVERYONE, ShareEnded, ShareOut
from gateway.sharing.told import Told, tell_owner, tell_recipient
from gateway.tenants.epochs import Epochs, bump
from gateway.tenants.service import no_such_tenant, require_active

MAX_SHARES = 10_000
"""Of one adapter; beyond it is shared with all, or not."""


@dataclass(frozen=True, slots=True)
class Base:
    """Over which these adapters are."""

    id: str
    name: str


class Sharing:
    """One a worker. A change is felt by whoever uses the adapter as soon as a worker hears of its owner's
    epoch, which is all that moves, however many tenants it is shared with."""

    def __init__(self, database: Database, epochs: Epochs, base: Base) -> None:
        self._database = database
        self._epochs = epochs
        self._base = base

    async def share(
        self,
        actor: Actor,
        owner: TenantId,
        name: str,
        recipient: TenantId | None,
        reachable: list[str] | None,
    ) -> ShareOut:
        """Adds or changes a share. Raises `NotFound` for the adapter and the recipient, `BadRequest` for what
        can't follow an @, `Conflict` for a tenant that is leaving, for the owner itself, and for too many."""
        _check_reachable(reachable)
        async with self._database.system_session() as session:
            adapter, tenants = await self._lock(session, owner, name, recipient)
            if recipient == owner:
                raise Conflict("A tenant has its own adapters anyway.", code="shared_with_owner")
            if recipient is not None:
                require_active(tenants.get(recipient))
            told = self._told(tenants, name, owner, recipient, reachable)
            if told.model == self._base.name:
                raise Conflict(f"'{told.model}' is the name of a base model.", code="reserved_adapter_name")
            known = await repository.find_share(session, adapter, recipient)
            if known is None and await repository.count_shares(session, adapter) >= MAX_SHARES:
                message = f"An adapter has at most {MAX_SHARES} shares; share it with all."
                raise Conflict(message, code="too_many_shares")
            share = await repository.put_share(session, adapter, recipient, reachable)
            await tell_owner(session, actor, told, "shared")
            await tell_recipient(session, actor, told, "shared")
            epoch = await bump(session, owner)
        await self._epochs.publish(owner, epoch)
        return _shown(share, told.recipient_name)

    async def end(self, actor: Actor, owner: TenantId, name: str, recipient: TenantId | None) -> ShareEnded:
        """What runs on it may finish; nothing more begins. Raises `NotFound`."""
        async with self._database.system_session() as session:
            adapter, tenants = await self._lock(session, owner, name, recipient)
            share = _existing(await repository.find_share(session, adapter, recipient))
            told = self._told(tenants, name, owner, recipient, share.reachable)
            await repository.end_share(session, share)
            await tell_owner(session, actor, told, "ended")
            await tell_recipient(session, actor, told, "ended")
            epoch = await bump(session, owner)
        await self._epochs.publish(owner, epoch)
        return ShareEnded(adapter=name, recipient_name=told.recipient_name)

    async def shares(
        self, principal: Principal, name: str, after: tuple[UUID] | None, limit: int
    ) -> Sequence[AdapterShare]:
        """Of one of the tenant's own adapters, oldest first. Raises `NotFound`."""
        async with self._database.tenant_reader(principal.tenant) as session:
            adapter = await self._own(session, principal, name)
            return await repository.list_shares(session, adapter, after, limit)

    async def shown(self, shares: Sequence[AdapterShare]) -> list[ShareOut]:
        """With their recipients' names, which a tenant's own session can't know."""
        recipients = [share.recipient_id for share in shares if share.recipient_id is not None]
        async with self._database.system_reader() as session:
            names = await repository.names_of(session, recipients)
        return [
            _shown(share, EVERYONE if share.recipient_id is None else names[share.recipient_id])
            for share in shares
        ]

    async def get(self, principal: Principal, name: str, recipient: TenantId | None) -> ShareOut:
        """Raises `NotFound`."""
        async with self._database.tenant_reader(principal.tenant) as session:
            adapter = await self._own(session, principal, name)
            share = _existing(await repository.find_share(session, adapter, recipient))
        (shown,) = await self.shown([share])
        return shown

    async def received(
        self, principal: Principal, after: tuple[str, str] | None, limit: int
    ) -> list[SharedAdapter]:
        """What other tenants share with the principal's, as far as the key may use it; by owner and name."""
        allowed = principal.allowed_models
        found: list[SharedAdapter] = []
        async with self._database.tenant_reader(principal.tenant) as session:
            while len(found) < limit:
                page = await repository.list_shared(session, self._base.id, after, limit)
                found += [each for each in page if allowed is None or each.model in allowed]
                if len(page) < limit:
                    break
                after = (page[-1].owner, page[-1].name)
        return found[:limit]

    async def _own(self, session: TenantRead, principal: Principal, name: str) -> Adapter:
        found = None
        if is_name(name) and may(principal, Action.SEE, name):
            found = await repository.find_owned(session, principal.tenant, self._base.id, name)
        if found is None:
            raise adapter_not_found(name)
        return found

    async def _lock(
        self, session: SystemWrite, owner: TenantId, name: str, recipient: TenantId | None
    ) -> tuple[Adapter, dict[UUID, Tenant]]:
        """The adapter and the tenants, until the transaction ends. Raises `NotFound`."""
        tenants = await repository.lock_pair(session, owner, recipient)
        require_active(tenants.get(owner))
        adapter = None
        if is_name(name):
            adapter = await repository.lock_owned(session, owner, self._base.id, name)
        if adapter is None:
            raise adapter_not_found(name)
        if recipient is not None and recipient not in tenants:
            raise no_such_tenant()
        return adapter, tenants

    @staticmethod
    def _told(
        tenants: dict[UUID, Tenant], name: str, owner: TenantId, recipient: TenantId | None, reachable: Any
    ) -> Told:
        to = EVERYONE if recipient is None else tenants[recipient].name
        return Told(owner, tenants[owner].name, name, recipient, to, reachable)


def _check_reachable(reachable: list[str] | None) -> None:
    for each in reachable or ():
        parsed = parse_model(f"x@{each}")
        if parsed is None:
            raise BadRequest(
                "'reachable' takes names of aliases and version numbers.",
                param="reachable",
                code="invalid_value",
            )


def _existing(share: AdapterShare | None) -> AdapterShare:
    if share is None:
        raise NotFound("It is not shared so.", code="share_not_found")
    return share


def _shown(share: AdapterShare, recipient_name: str) -> ShareOut:
    return ShareOut(
        adapter=share.adapter_name,
        recipient=share.recipient_id,
        recipient_name=recipient_name,
        reachable=share.reachable,
        created_at=share.created_at,
        updated_at=share.updated_at,
    )
