"""Threads that bring adapters from disk cache or store, so that the step thread never waits for either."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from engine.core.limits import MAX_FORGETS
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
        """Takes no more work and waits for what is under way."""
        ...


class LoaderThreads:
    """`loader_threads` threads load; one more drops disk copies. `wake` is called when a load has ended."""

    def __init__(self, source: AdapterSource, num_threads: int, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._loads = ThreadPoolExecutor(num_threads, thread_name_prefix="adapter-load")
        self._forgets = ThreadPoolExecutor(1, thread_name_prefix="adapter-forget")
        self._room = threading.BoundedSemaphore(MAX_FORGETS)
        self._done: queue.SimpleQueue[LoadDone] = queue.SimpleQueue()

    def start(self, adapter: AdapterRef) -> None:
        self._loads.submit(self._load, adapter)

    def finished(self) -> list[LoadDone]:
        done = []
        while not self._done.empty():
            done.append(self._done.get_nowait())
        return done

    def forget(self, adapter: AdapterRef) -> None:
        if not self._room.acquire(blocking=False):
            log.warning("too many retired adapters at once; the disk cache will evict %s", adapter.artefact)
            return
        self._forgets.submit(self._forget, adapter)

    def close(self) -> None:
        self._loads.shutdown(wait=True, cancel_futures=True)
        self._forgets.shutdown(wait=True, cancel_futures=True)

    def _load(self, adapter: AdapterRef) -> None:
        try:
            done = LoadDone(adapter, self._source.load(adapter))
        except AdapterUnavailable as error:
            done = LoadDone(adapter, None, str(error))
        except Exception as error:  # a fault in one adapter must answer its requests and hurt nobody else
            log.exception("adapter load failed: %s", adapter.artefact)
            done = LoadDone(adapter, None, f"The adapter could not be loaded ({type(error).__name__}).")
        self._done.put(done)
        self._wake()

    def _forget(self, adapter: AdapterRef) -> None:
        try:
            self._source.forget(adapter)
        except Exception:  # the disk cache's budget will evict it
            log.exception("disk copy not dropped: %s", adapter.artefact)
        finally:
            self._room.release()
