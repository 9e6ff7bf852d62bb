"""Tokens of single replicas: made, sealed at rest, and given to the driver."""

from __future__ import annotations

import secrets
from uuid import UUID

import structlog
from pydantic import SecretStr

from gateway.answers.sealing import DataKeys, Label
from gateway.models import Replica
from gateway.principal import TenantId

log = structlog.get_logger(__name__)

MIN_CHARACTERS = 16
MAX_CHARACTERS = 512
_BYTES = 32
_PLATFORM = TenantId(UUID(int=0))


def new_token() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(_BYTES))


class ReplicaTokens:
    """`shared` are those of all replicas that have none of their own: the present one first."""

    def __init__(self, keys: DataKeys, shared: tuple[str, ...]) -> None:
        self._keys = keys
        self._shared = shared

    def seal(self, url: str, token: SecretStr) -> bytes:
        return self._keys.seal(_label(url), token.get_secret_value().encode())

    def opens(self, row: Replica, token: SecretStr) -> bool:
        """Whether it is the replica's present one."""
        opened = None if row.token is None else self._keys.open(_label(row.url), row.token)
        return opened is not None and secrets.compare_digest(opened, token.get_secret_value().encode())

    def of(self, row: Replica) -> tuple[str, ...]:
        """What the replica may be asked with, the present one first. Never the shared ones where it has its
        own: it must not learn what others are asked with. Empty when a sealed one can't be opened."""
        sealed = [token for token in (row.token, row.token_previous) if token is not None]
        if not sealed:
            return self._shared
        opened = [self._keys.open(_label(row.url), token) for token in sealed]
        if None in opened:
            log.error("replica_token_not_opened", url=row.url)
        return tuple(token.decode() for token in opened if token is not None)

    @property
    def shared(self) -> tuple[str, ...]:
        return self._shared


def _label(url: str) -> Label:
    return Label("replica token", _PLATFORM, url)
