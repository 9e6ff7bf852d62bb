"""Threads that bring adapters from disk cache or store, so that the step thread never waits for either."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.core.adapter_entry import Lane
from engine.core.adapter_rules import MAX_FORGETS
from engine.core.limits import CLOSE_S
from engine.core.plan import AdapterSource, AdapterUnavailable, LoadedAdapter, NotNear
from engine.core.protocol import AdapterRef

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadDone:
    """How one load ended: with an adapter, with a sentence that says why not, or (from the disk lane only)
    with the news that the store has to be asked."""

    adapter: AdapterRef
    loaded: LoadedAdapter | None
    error: str = ""
    is_elsewhere: bool = False
    is_fault: bool = False  # the adapter's own: no store and no other moment would change it


class Loaders(Protocol):
    """The pool's way to the outside; the threads below, or a test that decides when loads end."""

    def is_near(self, adapter: AdapterRef) -> bool:
        """Whether the adapter seems to be on this machine's disk; asks no disk and no store."""
        ...

    def start(self, adapter: AdapterRef, lane: Lane) -> None:
        """Begins a load. The pool never has more of them under way in a lane than it has threads."""
        ...

    def finished(self) -> list[LoadDone]:
        """Loads that have ended since the last call."""
        ...

    def forget(self, adapter: AdapterRef) -> None:
        """Drops the adapter's disk copy, some time soon."""
        ...

    def close(self) -> None:
        """Takes no more work, and waits a short while for what is under way."""
        ...


class LoaderThreads:
    """As many threads for each lane as `num_threads` says load; one more drops disk copies. `wake` is called
    when a load has ended."""

    def __init__(
        self, source: AdapterSource, num_threads: Mapping[Lane, int], wake: Callable[[], None]
    ) -> None:
        self._source = source
        self._wake = wake
        self._num_threads = dict(num_threads)
        self._loads: dict[Lane, queue.SimpleQueue[AdapterRef | None]] = {
            lane: queue.SimpleQueue()
            for lane in num_threads  # bounded by the pool
        }
        self._forgets: queue.Queue[AdapterRef | None] = queue.Queue(MAX_FORGETS)
        self._done: queue.SimpleQueue[LoadDone] = queue.SimpleQueue()
        # Daemons, so that a store which doesn't answer can't keep the process from leaving.
        self._threads = [
            threading.Thread(target=self._load_forever, args=(lane,), name=f"adapter-{lane}-{i}", daemon=True)
            for lane, count in self._num_threads.items()
            for i in range(count)
        ]
        self._threads.append(
            threading.Thread(target=self._forget_forever, name="adapter-forget", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def is_near(self, adapter: AdapterRef) -> bool:
        return self._source.is_near(adapter)

    def start(self, adapter: AdapterRef, lane: Lane) -> None:
        self._loads[lane].put(adapter)

    def finished(self) -> list[LoadDone]:
        done = []
        while not self._done.empty():
            done.append(self._done.get_nowait())
        return done

    def forget(self, adapter: AdapterRef) -> None:
        try:
            self._forgets.put_nowait(adapter)
        except queue.Full:
            log.warning("too many retired adapters at once; the disk cache will evict %s", adapter.artefact)

    def close(self) -> None:
        for lane, count in self._num_threads.items():
            for _ in range(count):
                self._loads[lane].put(None)
        if not self._forgets.full():
            self._forgets.put_nowait(None)
        for thread in self._threads:
            thread.join(CLOSE_S / len(self._threads))

    def _load_forever(self, lane: Lane) -> None:
        while (adapter := self._loads[lane].get()) is not None:
            self._done.put(self._load(adapter, lane))
            self._wake()

    def _load(self, adapter: AdapterRef, lane: Lane) -> LoadDone:
        try:
            return LoadDone(adapter, self._source.load(adapter, fetch=lane is Lane.STORE))
        except NotNear:
            return LoadDone(adapter, None, is_elsewhere=True)
        except AdapterUnavailable as error:
            return LoadDone(adapter, None, str(error), is_fault=error.is_fault)
        except Exception as error:  # a fault in one adapter must answer its requests and hurt nobody else
            log.exception("adapter load failed: %s", adapter.artefact)
            return LoadDone(adapter, None, f"The adapter could not be loaded ({type(error).__name__}).")

    def _forget_forever(self) -> None:
        while (adapter := self._forgets.get()) is not None:
            try:
                self._source.forget(adapter)
            except Exception:  # the disk cache's budget will evict it
                log.exception("disk copy not dropped: %s", adapter.artefact)
