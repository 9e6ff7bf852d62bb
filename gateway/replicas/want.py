"""What the choice of a replica depends on: plain data, made once a request."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import msgspec

from gateway.replicas.replica import GENERAL

PREFIX_TOKENS: Final = (64, 128, 256, 512, 1_024, 2_048, 4_096)
"""Lengths of a prompt's beginning that are known again. Further apart as they grow: seven look-ups a
request."""


class Want(msgspec.Struct, frozen=True):
    """`prefix` and `session` are names within `tenant`'s part of the router's memory."""

    artefact: str | None = None  # None = the base
    tokens: int = 0  # most that it may use
    tenant: Hashable = None
    prefix: tuple[int, ...] = ()  # one for each of `PREFIX_TOKENS` that the prompt reaches
    session: int | None = None
    pool: str = GENERAL
    fallback: bool = True  # to the general pool, when its own can take nothing
    digests: frozenset[str] | None = None  # weights that the adapter was proved on; None = any


ANYTHING: Final = Want()


def prefix_chain(ids: Sequence[int]) -> tuple[int, ...]:
    """A hash of each of a prompt's beginnings, each over the one before. Of one process only, and never
    compared across tenants: what collides costs its own tenant a cache miss."""
    chain: list[int] = []
    known = start = 0
    for end in PREFIX_TOKENS:
        if end > len(ids):
            break
        known = hash((known, tuple(ids[start:end])))
        chain.append(known)
        start = end
    return tuple(chain)
