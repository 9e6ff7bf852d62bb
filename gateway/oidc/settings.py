"""Which providers may log people in, and what their groups may do. The list is the allow-list: nobody else's
word counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from gateway.config import Settings
from gateway.principal import Role
from gateway.public_url import PublicUrl

MAX_PROVIDERS: Final = 8
MAX_GROUPS: Final = 256
"""Of a provider's map, and as many as are read of one person."""
_RIGHT = re.compile(r"(?P<role>[a-z_]+)(?:@(?P<tenant>[a-z0-9][a-z0-9._-]{0,62}))?")


class OidcProvider(BaseModel):
    """One entry of `MOTET_OIDC_PROVIDERS`.

    `roles` maps a group to what it may do: `operator`, or a role in a tenant by its name: `developer@acme`.
    `links_accounts`: an email that the provider calls verified is the account of that email, so that its
    people may be named as members, also before they first log in. Only for a provider that is trusted with
    every email.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    issuer: Annotated[str, Field(max_length=512)]
    client_id: Annotated[str, Field(min_length=1, max_length=256)]
    client_secret: SecretStr
    scopes: str = "openid email profile"
    groups_claim: str = "groups"
    roles: Annotated[dict[str, str], Field(max_length=MAX_GROUPS)] = {}
    links_accounts: bool = False

    def rights(self, groups: Sequence[str]) -> list[Right]:
        """What these groups may do, in the order of the settings."""
        return [parse_right(right) for group, right in self.roles.items() if group in groups]


_LIST = TypeAdapter(tuple[OidcProvider, ...])


class Right(BaseModel):
    """`tenant` None: an operator of the platform."""

    model_config = ConfigDict(frozen=True)

    role: Role
    tenant: str | None


def parse_right(text: str) -> Right:
    """Raises ValueError."""
    found = _RIGHT.fullmatch(text)
    known = {role.value for role in Role}
    if found is None or found["role"] not in known:
        raise ValueError(f"'{text}' is no right: it takes 'operator', or a role and a tenant: developer@acme")
    role, tenant = Role(found["role"]), found["tenant"]
    if (role is Role.OPERATOR) != (tenant is None):
        raise ValueError(f"'{text}': operators are of no tenant, all other roles of one")
    return Right(role=role, tenant=tenant)


def providers_of(settings: Settings) -> tuple[OidcProvider, ...]:
    """Those that the settings name, fit for their public URL. Raises ValueError, which says what is wrong."""
    public = PublicUrl.parse(settings.public_url)
    providers = parse_providers(settings.oidc_providers)
    check_providers(providers, public)
    return providers


def parse_providers(setting: SecretStr | None) -> tuple[OidcProvider, ...]:
    """Raises ValueError, which says nothing of the secrets in it."""
    if setting is None or not setting.get_secret_value().strip():
        return ()
    try:
        return _LIST.validate_json(setting.get_secret_value())
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False, include_context=False)
        where = ".".join(str(part) for part in wrong[0]["loc"])
        message = f"MOTET_OIDC_PROVIDERS is not a list of providers: {where or 'JSON'}: {wrong[0]['msg']}"
        raise ValueError(message) from None


def check_providers(providers: Sequence[OidcProvider], public: PublicUrl) -> None:
    """Raises ValueError, which names the entry, for what can't work; before the first log-in would."""
    if len(providers) > MAX_PROVIDERS or len({each.id for each in providers}) < len(providers):
        raise ValueError(f"MOTET_OIDC_PROVIDERS names at most {MAX_PROVIDERS}, each by an id of its own")
    for provider in providers:
        where = f"MOTET_OIDC_PROVIDERS, '{provider.id}'"
        if not _is_trusted(provider.issuer):
            raise ValueError(f"{where}: the issuer '{provider.issuer}' is not https, nor on this machine")
        if "openid" not in provider.scopes.split():
            raise ValueError(f"{where}: 'scopes' lacks openid")
        try:
            _ = [parse_right(right) for right in provider.roles.values()]
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not (public.is_secure or public.is_local):
            raise ValueError(
                f"{where}: MOTET_PUBLIC_URL is {public.origin}: codes to log in would come back without TLS."
                " Set it to the https URL that browsers use"
            )


def redirect_uri(provider: OidcProvider, public: PublicUrl) -> str:
    """As it must be registered with the provider, to the character."""
    return public.url(f"/api/v1/session/oidc/{provider.id}/callback")


def _is_trusted(issuer: str) -> bool:
    try:
        own = PublicUrl(f"{urlsplit(issuer).scheme}://{urlsplit(issuer).netloc}", "")
    except ValueError:
        return False
    return own.is_secure or (own.origin.startswith("http://") and own.is_local)
