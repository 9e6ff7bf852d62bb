"""Adapters as kernels read them: factors in the order in which they are summed, and the table of slots."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

GROUPS: dict[str, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}
SITES = tuple(site for sites in GROUPS.values() for site in sites)
GROUP_OF = {site: group for group, sites in GROUPS.items() for site in sites}


class HostAdapter(Protocol):
    """What `adapters.loader.load` gives: (A [r, in], B [out, r], scale) by (layer, site)."""

    @property
    def modules(self) -> Mapping[tuple[int, str], tuple[Tensor, Tensor, float]]: ...


@dataclass(frozen=True, slots=True)
class Factors:
    a: Tensor  # [rank, in], contiguous
    b: Tensor  # B transposed: [rank, out], contiguous
    scale: float

    @property
    def rank(self) -> int:
        return self.a.shape[0]


@dataclass(frozen=True)
class KernelAdapter:
    """An adapter in kernel layout, at its exact ranks."""

    modules: dict[tuple[int, str], Factors]
    num_bytes: int
    max_rank: int
    touched: frozenset[tuple[int, str]]  # (layer, group)


def prepare(adapter: HostAdapter) -> KernelAdapter:
    """Transposes B, and brings both factors of a module into one dtype, as kernels read them: bfloat16, or
    float32, which holds any other exactly. They are copies: a view would keep all of its file's part in
    memory, of which `num_bytes` tells nothing."""
    modules = {where: _factors(a, b, float(scale)) for where, (a, b, scale) in adapter.modules.items()}
    return KernelAdapter(
        modules,
        num_bytes=sum(f.a.nbytes + f.b.nbytes for f in modules.values()),
        max_rank=max((f.rank for f in modules.values()), default=0),
        touched=frozenset((layer, GROUP_OF[site]) for layer, site in modules),
    )


def _factors(a: Tensor, b: Tensor, scale: float) -> Factors:
    dtype = torch.bfloat16 if a.dtype is torch.bfloat16 is b.dtype else torch.float32
    a, b = (factor.to(dtype, copy=True, memory_format=torch.contiguous_format) for factor in (a, b.t()))
    return Factors(a, b, scale)


class CFactor(ctypes.Structure):
    """Mirrors `Factor` in cpu.cpp. Rank 0: the slot has nothing at this site."""

    _fields_ = (
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("reserved", ctypes.c_int32),
    )


class CSite(ctypes.Structure):
    """Mirrors `Site` in cpu.cpp."""

    _fields_ = (
        ("factors", ctypes.c_void_p),
        ("slot_stride", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("column", ctypes.c_int64),
    )


class SlotTable:
    """Which adapter each slot holds. Owns the C table of factors, and the tensors it points to."""

    def __init__(self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]) -> None:
        self.adapters: list[KernelAdapter | None] = [None] * num_slots
        self.sites = dict(sites)
        self._num_layers = num_layers
        self._factors = (CFactor * (max(num_slots, 1) * num_layers * len(SITES)))()
        self.c_sites = {
            (layer, group): self._c_sites(layer, members)
            for layer in range(num_layers)
            for group, members in GROUPS.items()
        }

    def _c_sites(self, layer: int, members: Sequence[str]) -> ctypes.Array[CSite]:
        array = (CSite * len(members))()
        column = 0
        for entry, site in zip(array, members, strict=True):
            inputs, outputs = self.sites[site]
            entry.factors = ctypes.addressof(self._factors) + self._index(0, layer, site) * ctypes.sizeof(
                CFactor
            )
            entry.slot_stride = self._num_layers * len(SITES)
            entry.inputs, entry.outputs, entry.column = inputs, outputs, column
            column += outputs
        return array

    def _index(self, slot: int, layer: int, site: str) -> int:
        return (slot * self._num_layers + layer) * len(SITES) + SITES.index(site)

    def install(self, slot: int, adapter: KernelAdapter) -> None:
        self.clear(slot)
        for (layer, site), factors in adapter.modules.items():
            inputs, outputs = self.sites[site]
            assert (factors.a.shape[1], factors.b.shape[1]) == (inputs, outputs)
            entry = self._factors[self._index(slot, layer, site)]
            entry.a, entry.b = factors.a.data_ptr(), factors.b.data_ptr()
            entry.rank, entry.scale = factors.rank, factors.scale
            entry.dtype = int(factors.a.dtype is torch.bfloat16)
        self.adapters[slot] = adapter

    def clear(self, slot: int) -> None:
        start = self._index(slot, 0, SITES[0]) * ctypes.sizeof(CFactor)
        size = self._num_layers * len(SITES) * ctypes.sizeof(CFactor)
        ctypes.memset(ctypes.addressof(self._factors) + start, 0, size)
        self.adapters[slot] = None


class CLoraRows(ctypes.Structure):
    """Mirrors `LoraRows` in cpu.cpp."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("segments", ctypes.c_void_p),
        ("num_segments", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("h", ctypes.c_void_p),
        ("h_stride", ctypes.c_int64),
    )


@dataclass(frozen=True)
class LoraStep:
    """The rows of a step that have an adapter, sorted by slot."""

    table: SlotTable
    rows: Tensor  # int32 [n]: token rows
    segments: list[tuple[int, int, int]]  # (slot, start in rows, count)
    touched: frozenset[tuple[int, str]]  # (layer, group) where any of them has a factor
    c_rows: CLoraRows
    keep: tuple[Tensor, ...]  # what c_rows points to


def plan_lora(table: SlotTable, rows: Sequence[tuple[int, int]]) -> LoraStep | None:
    """For plan rows of (slot, number of tokens), slot < 0 meaning the base. None when all are base rows."""
    by_slot: dict[int, list[int]] = {}
    token = 0
    for slot, count in rows:
        if slot >= 0:
            by_slot.setdefault(slot, []).extend(range(token, token + count))
        token += count
    if not by_slot:
        return None
    segments: list[tuple[int, int, int]] = []
    order: list[int] = []
    touched: set[tuple[int, str]] = set()
    max_rank = 1
    for slot, tokens in sorted(by_slot.items()):
        adapter = table.adapters[slot]
        assert adapter is not None, f"slot {slot} is empty, but a row of the plan uses it"
        segments.append((slot, len(order), len(tokens)))
        order.extend(tokens)
        touched |= adapter.touched
        max_rank = max(max_rank, adapter.max_rank)
    return _lora_step(table, order, segments, frozenset(touched), max_rank)


def _lora_step(
    table: SlotTable,
    order: list[int],
    segments: list[tuple[int, int, int]],
    touched: frozenset[tuple[int, str]],
    max_rank: int,
) -> LoraStep:
    rows = torch.tensor(order, dtype=torch.int32)
    c_segments = torch.tensor(segments, dtype=torch.int32)
    scratch = torch.empty(max(len(g) for g in GROUPS.values()) * len(order) * max_rank)
    c_rows = CLoraRows(
        rows.data_ptr(), c_segments.data_ptr(), len(segments), len(order), scratch.data_ptr(), max_rank
    )
    return LoraStep(table, rows, segments, touched, c_rows, (rows, c_segments, scratch))
