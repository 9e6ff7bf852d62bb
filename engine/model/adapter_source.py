"""Adapters for the runner: from the disk cache (or the store behind it) into kernel layout, on a loader
thread."""

from __future__ import annotations

import time

from adapters.base import BaseSpec
from adapters.disk_cache import DiskCache
from adapters.loader import WrongBase, load
from adapters.packed import PackedCorrupt
from adapters.store import NotFound, StoreError
from engine.core.plan import AdapterUnavailable, LoadedAdapter
from engine.core.protocol import AdapterRef, Tier
from engine.kernels.lora import prepare


class AdapterFiles:
    """`engine.core.plan.AdapterSource` over a disk cache."""

    def __init__(self, cache: DiskCache, base: BaseSpec) -> None:
        self._cache = cache
        self._base = base

    def load(self, adapter: AdapterRef) -> LoadedAdapter:
        began = time.monotonic()
        try:
            near = self._cache.contains(adapter.owner, adapter.artefact)
            with self._cache.lease(adapter.owner, adapter.artefact) as path:
                prepared = prepare(load(path, self._base))
        except NotFound as error:
            raise AdapterUnavailable("The adapter is not in the store.") from error
        except PackedCorrupt as error:
            self._cache.forget(adapter.owner, adapter.artefact)
            raise AdapterUnavailable(f"The adapter's file is damaged: {error}.") from error
        except WrongBase as error:
            raise AdapterUnavailable(f"The adapter does not fit the base: {error}.") from error
        except (StoreError, OSError) as error:
            raise AdapterUnavailable(f"The adapter could not be fetched: {error}.") from error
        load_ms = (time.monotonic() - began) * 1000
        return LoadedAdapter(prepared, prepared.num_bytes, Tier.DISK if near else Tier.STORE, load_ms)

    def forget(self, adapter: AdapterRef) -> None:
        self._cache.forget(adapter.owner, adapter.artefact)
