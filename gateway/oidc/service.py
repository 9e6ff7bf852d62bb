"""The rules of logging in at a provider: who is let in, as which account, and with which rights.

An account is found by the provider's own id of the person, never by an email alone, unless the provider is
trusted with emails (`links_accounts`). The people of one that is not have accounts under a name that is no
email, so that nothing that is given to an email is ever theirs. What groups allow is part of the session, and
ends with it; what the account may do by itself (memberships) is there besides.
Nobody is an operator in such a session but by a group: so a provider can't be made to open one's account.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import structlog
from redis.asyncio import Redis

from gateway.admin_auth.service import AdminAuthenticator
from gateway.admin_auth.sessions import Given
from gateway.audit.service import SYSTEM, Change, record
from gateway.client_address import Address
from gateway.config import Settings
from gateway.db import Database, SystemRead
from gateway.errors import NotFound
from gateway.ids import uuid7
from gateway.members.repository import tenants_of
from gateway.models import Admin
from gateway.oidc import repository
from gateway.oidc.flows import Begun, Flows
from gateway.oidc.provider import Asked, Claims, Provider, Untrusted
from gateway.oidc.settings import OidcProvider, providers_of, redirect_uri
from gateway.principal import Role
from gateway.public_url import PublicUrl

log = structlog.get_logger(__name__)

MAX_RETURN = 1_024


class Refused(Exception):
    """Nobody is logged in. The reason is a word of `log-in?error=`, which the UI explains."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entered:
    """`cookie`: the session's. `return_to`: a path of the UI."""

    cookie: str
    return_to: str


class LogIns:
    def __init__(
        self, providers: dict[str, Provider], flows: Flows, db: Database, admins: AdminAuthenticator
    ) -> None:
        self._providers = providers
        self._flows = flows
        self._db = db
        self._admins = admins

    @property
    def offered(self) -> list[OidcProvider]:
        return [provider.settings for provider in self._providers.values()]

    async def begin(self, provider: str, return_to: str, address: Address | None) -> tuple[str, Begun]:
        """Where to send the browser, and what it is to keep. Raises `NotFound`, `RateLimited`, and
        `Unavailable`."""
        found = self._provider(provider)
        await self._admins.count_begun(address)
        begun = await self._flows.begin(provider, return_to)
        return await found.authorization_url(begun.asked), begun

    async def finish(self, provider: str, state: str, browser: str, code: str) -> Entered:
        """Raises `NotFound`, `Refused`, and `Unavailable`."""
        found = self._provider(provider)
        flow = await self._flows.take(provider, state, browser)
        if flow is None:
            raise Refused("expired")
        if not code:
            raise Refused("denied")
        try:
            claims = await found.claims(code, Asked(state, flow.nonce, flow.verifier))
        except Untrusted as error:
            log.warning("oidc_untrusted", provider=provider, reason=str(error))
            raise Refused("untrusted") from error
        given = await self._given(found.settings, claims)
        account = await self._account(found.settings, claims, given)
        return Entered(await self._admins.open(account, given), flow.return_to)

    def _provider(self, provider: str) -> Provider:
        found = self._providers.get(provider)
        if found is None:
            raise NotFound("There is no such provider.")
        return found

    async def _given(self, provider: OidcProvider, claims: Claims) -> Given:
        """Of several roles in one tenant the first that the settings name."""
        rights = provider.rights(claims.groups)
        names = {right.tenant for right in rights if right.tenant is not None}
        async with self._db.system_reader() as session:
            tenants = await repository.tenants_named(session, names) if names else {}
        roles: dict[UUID, str] = {}
        for right in rights:
            if right.tenant is not None and right.tenant in tenants:
                roles.setdefault(tenants[right.tenant], right.role.value)
        return Given(provider.id, any(right.role is Role.OPERATOR for right in rights), roles)

    async def _account(self, provider: OidcProvider, claims: Claims, given: Given) -> UUID:
        """Raises `Refused`."""
        async with self._db.system_session() as session:
            known = await _known(session, provider, claims, given)
            account = uuid7() if known is None else known.id
            if not (given.is_operator or given.roles or (known and await tenants_of(session, account))):
                raise Refused("no_role")
            name = _name(provider, claims) if known is None else known.email
            if known is None and not await repository.add_account(session, account, name):
                raise Refused("email_taken")
            await repository.set_identity(session, provider.issuer, claims.subject, account)
            record(session, SYSTEM, Change("admin.log_in", name, None, _told(given)))
        return account


def open_log_ins(settings: Settings, db: Database, redis: Redis, admins: AdminAuthenticator) -> LogIns:
    """Raises ValueError for providers that can't work."""
    public = PublicUrl.parse(settings.public_url)
    named = providers_of(settings)
    providers = {each.id: Provider(each, redirect_uri(each, public)) for each in named}
    for each in named:
        log.info("oidc_provider", provider=each.id, redirect_uri=redirect_uri(each, public))
    return LogIns(providers, Flows(redis), db, admins)


async def _known(session: SystemRead, provider: OidcProvider, claims: Claims, given: Given) -> Admin | None:
    """The account that the person has, or may have by its email. Raises `Refused`."""
    found = await repository.account_of(session, provider.issuer, claims.subject)
    if found is not None and found.disabled_at is not None:
        raise Refused("disabled")
    since_trusted = (
        provider.links_accounts and found is not None and found.email == _strange(provider, claims)
    )
    if found is not None and not since_trusted:
        return found
    if not claims.email:
        raise Refused("no_email")
    found = await repository.account_with(session, _name(provider, claims))
    may_link = provider.links_accounts and (given.is_operator or found is None or not found.is_operator)
    if found is not None and not may_link:
        raise Refused("email_taken")
    if found is not None and found.disabled_at is not None:
        raise Refused("disabled")
    return found


def _name(provider: OidcProvider, claims: Claims) -> str:
    """Of an account that is made. Members are named by email: whoever had one from a provider that gives out
    any would have what a tenant gives to it later, and would shut out whose it is."""
    return claims.email if provider.links_accounts else _strange(provider, claims)


def _strange(provider: OidcProvider, claims: Claims) -> str:
    return f"{claims.email} ({provider.id})"


def _told(given: Given) -> dict[str, object]:
    roles = {str(tenant): role for tenant, role in given.roles.items()}
    return {"provider": given.provider, "is_operator": given.is_operator, "roles": roles}
