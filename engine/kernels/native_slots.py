"""Adapters as whole steps read them: packed once, by a loader thread, into one run of memory; the slots."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.lora import GROUPS, SITES, Factors, KernelAdapter
from engine.kernels.native import CPackedFactor, NativeLibrary
from engine.kernels.shapes import LANES

HUGE_PAGE = 1 << 21
SMALL_RUN = 1 << 16  # what is too little for a huge page takes a multiple of this
# Adapters of one rank would lie alike in their pages, and a step reads the same part of each at once: those
# lines would push each other out of the few places that a cache has for them. So each begins elsewhere.
STAGGER, STAGGERED = 8 * 1024 + 576, 16


class Arena:
    """Zeroed memory, in huge pages where it fills half of one and the system has them, handed out in parts of
    whole cache lines."""

    def __init__(self, num_bytes: int) -> None:
        is_huge = fills_huge_pages(num_bytes)
        unit = HUGE_PAGE if is_huge else SMALL_RUN
        self.num_bytes = max(-(-num_bytes // unit), 1) * unit
        # Private: shared memory, which Python takes by default, gets no huge pages.
        self._map = mmap.mmap(-1, self.num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if is_huge and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._array = np.frombuffer(self._map, np.uint8)
        self._start = self._array.ctypes.data
        self._used = 0

    def take(self, num_bytes: int) -> int:
        """The address of a new part."""
        at = self._used
        self._used += _line(num_bytes)
        assert self._used <= self.num_bytes
        return self._start + at


def fills_huge_pages(num_bytes: int) -> bool:
    return 2 * num_bytes >= HUGE_PAGE


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter in the form of gemm.h, at its exact ranks."""

    arena: Arena  # what the factors point to
    factors: Mapping[tuple[int, str], CPackedFactor]  # by (layer, site)
    touched: NDArray[np.uint8]  # [layers * groups]
    max_rank: int

    @property
    def num_bytes(self) -> int:
        """What it takes of memory, up to whole pages."""
        return self.arena.num_bytes


class AdapterPacker:
    """Packs adapters for one model. Its calls may come from any thread."""

    def __init__(
        self,
        library: NativeLibrary,
        dtype: torch.dtype,
        num_layers: int,
        sites: Mapping[str, tuple[int, int]],
    ) -> None:
        self._library = library
        self._dtype = dtype
        self._num_layers = num_layers
        self._sites = dict(sites)
        self._packed = itertools.count()

    def pack(self, adapter: KernelAdapter) -> PackedAdapter:
        modules = {where: self._in_form(factors) for where, factors in adapter.modules.items()}
        num_bytes = sum(_line(a) + _line(b) for a, b in map(_factor_bytes, modules.values()))
        stagger = next(self._packed) % STAGGERED * STAGGER if fills_huge_pages(num_bytes) else 0
        arena = Arena(stagger + num_bytes)
        arena.take(stagger)
        touched = np.zeros((self._num_layers, len(GROUPS)), np.uint8)
        packed = {}
        for layer, (index, group) in itertools.product(range(self._num_layers), enumerate(GROUPS.values())):
            held = {site: modules[layer, site] for site in group if (layer, site) in modules}
            # In the order of a step: A of all sites that share inputs, then B of each.
            places_a = [arena.take(_factor_bytes(factors)[0]) for factors in held.values()]
            places_b = [arena.take(_factor_bytes(factors)[1]) for factors in held.values()]
            for (site, factors), a, b in zip(held.items(), places_a, places_b, strict=True):
                assert (factors.a.shape[1], factors.b.shape[1]) == self._sites[site]
                self._library.pack_factors(factors, a, b)
                is_bfloat16 = factors.a.dtype is torch.bfloat16
                packed[layer, site] = CPackedFactor(a, b, factors.rank, is_bfloat16, factors.scale, 0)
                touched[layer, index] = 1
        return PackedAdapter(arena, packed, touched.reshape(-1), max(adapter.max_rank, 1))

    def _in_form(self, factors: Factors) -> Factors:
        """bfloat16 beside bfloat16 activations, else exact in float32."""
        if self._dtype is torch.bfloat16 and factors.a.dtype is torch.bfloat16 is factors.b.dtype:
            return factors
        return Factors(factors.a.float(), factors.b.float(), factors.scale)


class NativeSlots:
    """Which adapter each slot holds: `AdapterSlots`, over a table that C++ reads."""

    def __init__(self, packer: AdapterPacker, num_slots: int, num_layers: int) -> None:
        self._packer = packer
        self._num_layers = num_layers
        self.factors = (CPackedFactor * (max(num_slots, 1) * num_layers * len(SITES)))()
        self._installed: list[PackedAdapter | None] = [None] * num_slots

    def install(self, slot: int, adapter: KernelAdapter | PackedAdapter) -> None:
        self.clear(slot)
        packed = adapter if isinstance(adapter, PackedAdapter) else self._packer.pack(adapter)
        for (layer, site), factor in packed.factors.items():
            self.factors[(slot * self._num_layers + layer) * len(SITES) + SITES.index(site)] = factor
        self._installed[slot] = packed

    def clear(self, slot: int) -> None:
        size = self._num_layers * len(SITES) * ctypes.sizeof(CPackedFactor)
        ctypes.memset(ctypes.addressof(self.factors) + slot * size, 0, size)
        self._installed[slot] = None

    def installed(self, slot: int) -> PackedAdapter:
        found = self._installed[slot]
        assert found is not None, f"slot {slot} is empty, but a row of the plan uses it"
        return found


def _factor_bytes(factors: Factors) -> tuple[int, int]:
    """Of A in rows of whole vectors, and of B in blocks of whole steps (gemm.h)."""
    rank, inputs = factors.a.shape
    per_step = 4 // factors.a.itemsize
    steps = -(-rank // per_step)
    width = -(-inputs // (2 * LANES)) * 2 * LANES
    return rank * width * factors.a.itemsize, -(-factors.b.shape[1] // LANES) * steps * 4 * LANES


def _line(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64
