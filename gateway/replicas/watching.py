"""Follows what each replica says of itself: a stream of its states, which tells every change as it happens;
where there is none (another engine, or too many watchers), a look each second.

A stream that breaks off or falls silent means nothing but that the replica has to be asked; and since a
server whose core hangs still streams, it is asked now and then in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from gateway.replicas.driver import ReplicaView, UpstreamFailed
from gateway.replicas.replica import Replica

log = structlog.get_logger(__name__)

POLL_S: Final = 1.0
ASK_S: Final = 5.0
"""Between two looks while a stream is followed."""
MEASURE_S: Final = 1.0

Hear = Callable[[Replica, ReplicaView | None, str], None]
"""A replica, its state or None when it is not ready, and why."""


class Watching:
    """One task a replica while `run` runs; without it, only `poll_all`."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._watched: dict[Replica, asyncio.Task[None] | None] = {}
        self._running = False

    def add(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._watched[replica] = self._start(replica) if self._running else None

    def drop(self, replica: Replica) -> None:
        task = self._watched.pop(replica, None)
        if task is not None:
            task.cancel()

    async def poll_all(self, replicas: Iterable[Replica]) -> None:
        await asyncio.gather(*(self._poll(replica) for replica in replicas))

    async def run(self, measure: Callable[[], None]) -> None:
        """Until cancelled; `measure` is called each second."""
        self._running = True
        try:
            for replica in self._watched:
                self._watched[replica] = self._start(replica)
            while True:
                measure()
                await asyncio.sleep(MEASURE_S)
        finally:
            self._running = False
            tasks = [task for task in self._watched.values() if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, replica: Replica) -> asyncio.Task[None]:
        return asyncio.create_task(self._watch(replica), name=f"watch {replica.url}")

    async def _watch(self, replica: Replica) -> None:
        while True:
            try:
                if await self._poll(replica):
                    await self._follow_and_ask(replica)
            except Exception:  # a fault of ours must not leave a replica unwatched
                log.critical("replica_watch_failed", url=replica.url, exc_info=True)
            await asyncio.sleep(POLL_S)

    async def _poll(self, replica: Replica) -> bool:
        """Whether it is ready, by a look."""
        try:
            view = await replica.driver.view() if await replica.driver.ready() else None
            view = view if view is None or view.ready else None
            reason = "" if view is not None else "not ready"
        except UpstreamFailed as error:
            view, reason = None, str(error)
        self._hear(replica, view, reason)
        return view is not None

    async def _follow_and_ask(self, replica: Replica) -> None:
        following = asyncio.create_task(self._follow(replica))
        try:
            while not (await asyncio.wait({following}, timeout=ASK_S))[0]:
                if not await self._poll(replica):
                    return
            following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, replica: Replica) -> None:
        """Until the stream ends, or says that the replica is not ready."""
        try:
            async for view in replica.driver.views():
                if not view.ready:
                    self._hear(replica, None, "not ready")
                    return
                self._hear(replica, view, "")
        except UpstreamFailed as error:
            log.info("replica_stream_ended", url=replica.url, reason=str(error))
            await self._poll(replica)
