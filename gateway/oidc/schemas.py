"""Wire types of log-in at a provider."""

from __future__ import annotations

import msgspec


class ProviderOut(msgspec.Struct, frozen=True):
    """`path`: where a browser goes to begin, from the root of this installation."""

    id: str
    name: str
    path: str


class ProvidersOut(msgspec.Struct, frozen=True):
    """`password`: a password logs in, too."""

    data: list[ProviderOut]
    password: bool = True
