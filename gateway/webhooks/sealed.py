"""What of an endpoint is sealed at rest: its URL, which is often a secret itself, and its signing secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.answers.sealing import DataKeys, Label
from gateway.models import WebhookEndpoint
from gateway.principal import TenantId
from gateway.webhooks.signing import SigningSecret

URL = "webhook url"
SECRET = "webhook secret"  # noqa: S105  a purpose, no secret


class CanNotOpen(Exception):
    """The key that sealed it is gone: MOTET_DATA_KEY was changed without its previous value."""


@dataclass(frozen=True, slots=True)
class Sealer:
    """One per process."""

    keys: DataKeys

    def set_url(self, endpoint: WebhookEndpoint, url: str) -> None:
        endpoint.url = self._seal(endpoint, URL, url.encode())

    def url(self, endpoint: WebhookEndpoint) -> str:
        """Raises `CanNotOpen`."""
        return self._open(endpoint, URL, endpoint.url).decode()

    def set_secret(self, endpoint: WebhookEndpoint, secret: SigningSecret) -> None:
        endpoint.secret = self._seal(endpoint, SECRET, secret.value)

    def secrets(self, endpoint: WebhookEndpoint) -> list[SigningSecret]:
        """The current one first; the previous while its overlap lasts. Raises `CanNotOpen`."""
        held = [endpoint.secret]
        if endpoint.previous_secret is not None and endpoint.previous_until is not None:
            held += [endpoint.previous_secret] if endpoint.previous_until > datetime.now(UTC) else []
        return [SigningSecret(self._open(endpoint, SECRET, each)) for each in held]

    def reseal(self, endpoint: WebhookEndpoint) -> bool:
        """Under the current key; whether anything was under another. Raises `CanNotOpen`."""
        changed = False
        if not self.keys.is_current(endpoint.url):
            self.set_url(endpoint, self.url(endpoint))
            changed = True
        if not self.keys.is_current(endpoint.secret):
            endpoint.secret = self._again(endpoint, endpoint.secret)
            changed = True
        if endpoint.previous_secret is not None and not self.keys.is_current(endpoint.previous_secret):
            endpoint.previous_secret = self._again(endpoint, endpoint.previous_secret)
            changed = True
        return changed

    def _again(self, endpoint: WebhookEndpoint, sealed: bytes) -> bytes:
        return self._seal(endpoint, SECRET, self._open(endpoint, SECRET, sealed))

    def _seal(self, endpoint: WebhookEndpoint, purpose: str, data: bytes) -> bytes:
        return self.keys.seal(_label(endpoint, purpose), data)

    def _open(self, endpoint: WebhookEndpoint, purpose: str, sealed: bytes) -> bytes:
        opened = self.keys.open(_label(endpoint, purpose), sealed)
        if opened is None:
            raise CanNotOpen
        return opened


def _label(endpoint: WebhookEndpoint, purpose: str) -> Label:
    return Label(purpose, TenantId(endpoint.tenant_id), str(endpoint.id))
