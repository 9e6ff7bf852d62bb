"""Adapters for the runner: from the disk cache (or the store behind it) into kernel layout, on a loader
thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from adapters.base import BaseSpec
from adapters.disk_cache import FETCH_ATTEMPTS, DiskCache, NotCached
from adapters.loader import HostAdapter, WrongBase, load
from adapters.packed import PackedCorrupt
from adapters.store import NotFound, StoreError
from engine.core.plan import AdapterUnavailable, LoadedAdapter, NotNear
from engine.core.protocol import AdapterRef, Tier


class Prepared(Protocol):
    """An adapter as a runner installs it."""

    @property
    def num_bytes(self) -> int:
        """What it takes of host memory."""
        ...


P = TypeVar("P", bound=Prepared)


class AdapterFiles(Generic[P]):
    """`engine.core.plan.AdapterSource` over a disk cache. `prepare` brings an adapter into the form that the
    runner installs; `device_bytes` tells what that takes of the device's budget, and is None where a slot
    only points to host memory."""

    def __init__(
        self,
        cache: DiskCache,
        base: BaseSpec,
        prepare: Callable[[HostAdapter], P],
        device_bytes: Callable[[P], int] | None = None,
    ) -> None:
        self._cache = cache
        self._base = base
        self._prepare = prepare
        self._device_bytes = device_bytes

    def is_near(self, adapter: AdapterRef) -> bool:
        return self._cache.contains(adapter.owner, adapter.artefact)

    def load(self, adapter: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        began = time.monotonic()
        try:
            near = self.is_near(adapter)
            read = self._read(adapter, fetch=fetch)
        except NotCached as error:
            raise NotNear from error
        except NotFound as error:
            raise AdapterUnavailable("The adapter is not in the store.") from error
        except WrongBase as error:
            raise AdapterUnavailable(f"The adapter does not fit the base: {error}.", is_fault=True) from error
        except StoreError as error:
            raise AdapterUnavailable(f"The adapter could not be fetched: {error}.") from error
        except (PackedCorrupt, OSError) as error:
            self._cache.forget(adapter.owner, adapter.artefact)  # else it would fail here for ever
            if not fetch:
                raise NotNear from error
            raise AdapterUnavailable(f"The adapter's file can't be read: {error}.") from error
        prepared = self._prepare(read)
        load_ms = (time.monotonic() - began) * 1000
        return LoadedAdapter(
            handle=prepared,
            num_bytes=prepared.num_bytes,
            found_in=Tier.DISK if near else Tier.STORE,
            load_ms=load_ms,
            device_bytes=self._device_bytes(prepared) if self._device_bytes else 0,
        )

    def _read(self, adapter: AdapterRef, *, fetch: bool) -> HostAdapter:
        """Each byte is hashed once, on its way to memory. A file that broke on its way here is fetched once
        more."""
        for _ in range(FETCH_ATTEMPTS - 1 if fetch else 0):
            with contextlib.suppress(PackedCorrupt):
                return self._read_once(adapter, fetch=True)
        return self._read_once(adapter, fetch=fetch)

    def _read_once(self, adapter: AdapterRef, *, fetch: bool) -> HostAdapter:
        with self._cache.lease(adapter.owner, adapter.artefact, fetch=fetch, check=False) as path:
            return load(path, self._base, adapter.artefact)

    def forget(self, adapter: AdapterRef) -> None:
        self._cache.forget(adapter.owner, adapter.artefact)
