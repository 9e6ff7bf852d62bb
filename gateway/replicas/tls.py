"""How this gateway and its replicas prove who they are to each other, where their URLs are https://."""

from __future__ import annotations

import ssl
from typing import Final

from gateway.config import Settings

LEAST: Final = ssl.TLSVersion.TLSv1_2


def replica_tls(settings: Settings) -> ssl.SSLContext | None:
    """None where the settings say nothing of it: then the system's authorities are asked. Raises OSError and
    `ssl.SSLError` for files that can't be read, ValueError for a certificate without its key."""
    cert, key = settings.replica_client_cert, settings.replica_client_key
    if (cert is None) != (key is None):
        raise ValueError("MOTET_REPLICA_CLIENT_CERT and MOTET_REPLICA_CLIENT_KEY go together")
    if settings.replica_ca is None and cert is None:
        return None
    context = ssl.create_default_context(cafile=settings.replica_ca)
    context.minimum_version = LEAST
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context
