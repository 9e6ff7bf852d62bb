"""Threads that bring adapters from disk cache or store, so that the step thread never waits for either."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.core.limits import CLOSE_S, MAX_FORGETS
from engine.core.plan import AdapterSource, AdapterUnavailable, LoadedAdapter
from engine.core.protocol import AdapterRef

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadDone:
    """How one load ended: with an adapter, or with a sentence that says why not."""

    adapter: AdapterRef
    loaded: LoadedAdapter | None
    error: str = ""


class Loaders(Protocol):
    """The pool's way to the outside; the threads below, or a test that decides when loads end."""

    def start(self, adapter: AdapterRef) -> None:
        """Begins a load. The pool never has more of them under way than `loader_threads`."""
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
    """`num_threads` threads load; one more drops disk copies. `wake` is called when a load has ended."""

    def __init__(self, source: AdapterSource, num_threads: int, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._loads: queue.SimpleQueue[AdapterRef | None] = queue.SimpleQueue()  # bounded by the pool
        self._forgets: queue.Queue[AdapterRef | None] = queue.Queue(MAX_FORGETS)
        self._done: queue.SimpleQueue[LoadDone] = queue.SimpleQueue()
        # Daemons, so that a store which doesn't answer can't keep the process from leaving.
        self._threads = [
            threading.Thread(target=self._load_forever, name=f"adapter-load-{i}", daemon=True)
            for i in range(num_threads)
        ]
        self._threads.append(
            threading.Thread(target=self._forget_forever, name="adapter-forget", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def start(self, adapter: AdapterRef) -> None:
        self._loads.put(adapter)

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
        for _ in self._threads[:-1]:
            self._loads.put(None)
        if not self._forgets.full():
            self._forgets.put_nowait(None)
        for thread in self._threads:
            thread.join(CLOSE_S / len(self._threads))

    def _load_forever(self) -> None:
        while (adapter := self._loads.get()) is not None:
            self._done.put(self._load(adapter))
            self._wake()

    def _load(self, adapter: AdapterRef) -> LoadDone:
        try:
            return LoadDone(adapter, self._source.load(adapter))
        except AdapterUnavailable as error:
            return LoadDone(adapter, None, str(error))
        except Exception as error:  # a fault in one adapter must answer its requests and hurt nobody else
            log.exception("adapter load failed: %s", adapter.artefact)
            return LoadDone(adapter, None, f"The adapter could not be loaded ({type(error).__name__}).")

    def _forget_forever(self) -> None:
        while (adapter := self._forgets.get()) is not None:
            try:
                self._source.forget(adapter)
            except Exception:  # the disk cache's budget will evict it
                log.exception("disk copy not dropped: %s", adapter.artefact)
