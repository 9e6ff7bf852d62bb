"""Builds the replicas of a process: their driver, registry and roster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from adapters.base import BaseSpec
from gateway.answers.sealing import DataKeys
from gateway.config import Settings
from gateway.db import Database
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Registry
from gateway.replicas.roster import Roster, RosterNeeds
from gateway.replicas.tokens import ReplicaTokens


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a process knows of its replicas, and how."""

    registry: Registry
    roster: Roster
    tokens: ReplicaTokens


def data_keys(settings: Settings) -> DataKeys:
    """The keys that seal what is kept; where none is set, they are derived from the pepper. Raises
    ValueError for one that is too short."""
    if settings.data_key is not None:
        return DataKeys(settings.data_key, settings.data_key_previous)
    return DataKeys(settings.pepper, settings.data_key_previous or settings.pepper_previous)


def replica_urls(settings: Settings) -> list[str]:
    """Those that the settings list."""
    return [url.strip().rstrip("/") for url in settings.replicas.split(",") if url.strip()]


def open_fleet(
    settings: Settings,
    db: Database,
    base: BaseSpec,
    session: ReplicaSession,
    on_change: Callable[[int], None] | None = None,
    *,
    keep_removed: bool = False,
) -> Fleet:
    """Knows the listed replicas; `roster.refresh` knows all."""
    shared = [settings.engine_token, settings.engine_token_previous]
    tokens = ReplicaTokens(
        data_keys(settings), tuple(token.get_secret_value() for token in shared if token is not None)
    )
    registry = Registry([], on_change, running=settings.replica_running)
    needs = RosterNeeds(
        db=db,
        base_id=base.base_id,
        listed=replica_urls(settings),
        digests=settings.base_digests,
        tokens=tokens,
        make_driver=partial(MotetDriver, session),
    )
    return Fleet(registry, Roster(needs, registry, keep_removed=keep_removed), tokens)
