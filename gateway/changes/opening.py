"""Builds the feed of a worker and its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.admin_auth.sessions import SessionStore
from gateway.changes.feed import Feed
from gateway.changes.fleet_tail import FleetTail
from gateway.changes.log_tail import LogTail
from gateway.changes.open_streams import OpenStreams, StreamBounds
from gateway.changes.service import Changes
from gateway.config import Settings
from gateway.db import Database
from gateway.draining import Leaving
from gateway.placement.moves import Moves
from gateway.replicas.registry import Registry


@dataclass(frozen=True, slots=True)
class Sources:
    """What a worker learns of changes from."""

    db: Database
    base_id: str
    registry: Registry
    moves: Moves
    sessions: SessionStore


@asynccontextmanager
async def open_changes(settings: Settings, sources: Sources, leaving: Leaving) -> AsyncIterator[Changes]:
    fleet = FleetTail(sources.db, sources.base_id, sources.registry, sources.moves)
    feed = Feed(LogTail(sources.db), fleet, sources.sessions, leaving)
    bounds = StreamBounds(settings.change_streams, settings.change_streams_account)
    async with feed.running():
        yield Changes(feed, OpenStreams(bounds), settings.stream_keep_alive_s, leaving)
