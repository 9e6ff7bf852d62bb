"""Whole forward steps in C++ (docs/decisions/0010): what a step reads, laid out for one call, and slots of
adapters.

A backend of its own beside `engine.kernels.host`: cells of the KV cache have the same size here and another
order inside (paged.h).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.plan import Row
from engine.kernels.lora import GROUPS, SITES, Factors, KernelAdapter
from engine.kernels.shapes import (
    LANES,
    MAX_GROUPED,
    AdapterSlots,
    AttentionShape,
    LayerCache,
    new_cache,
)

TILE_ROWS = 16
CACHE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2}
HUGE_PAGE = 1 << 21


class CPacked(ctypes.Structure):
    """Mirrors `Packed` in step.h."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("steps", c_int64), ("blocks", c_int64))


class CLayer(ctypes.Structure):
    """Mirrors `Layer` in step.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        *((name, CPacked) for name in GROUPS),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scale", c_float),
        ("value_scale", c_float),
    )


class CModel(ctypes.Structure):
    """Mirrors `Model` in step.h."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in (
                "hidden", "inner", "vocab", "num_heads", "num_kv_heads", "head_dim", "block_size",
                "num_layers",
            )
        ),
        ("attention_scale", c_float),
        ("norm_eps", c_float),
        ("embedding", c_void_p),
        ("cos_sin", c_void_p),
        ("final_norm", c_void_p),
        ("head", CPacked),
        ("layers", POINTER(CLayer)),
    )  # fmt: skip


class CPackedFactor(ctypes.Structure):
    """Mirrors `PackedFactor` in step.h. Rank 0: the slot has nothing at this site."""

    _fields_ = (
        ("a", c_void_p),
        ("b", c_void_p),
        ("rank", c_int32),
        ("is_bfloat16", c_int32),
        ("scale", c_float),
        ("reserved", c_int32),
    )


class CStep(ctypes.Structure):
    """Mirrors `Step` in step.h."""

    _fields_ = (
        ("tokens", c_void_p),
        ("num_tokens", c_int64),
        ("chunks", c_void_p),
        ("num_chunks", c_int64),
        ("tables", c_void_p),
        ("order", c_void_p),
        ("runs", c_void_p),
        ("num_runs", c_int64),
        ("max_rank", c_int64),
        ("factors", c_void_p),
        ("touched", c_void_p),
        ("residual", c_void_p),
        ("scratch", c_void_p),
    )


class NativeLibrary:
    """The C++ kernels of whole steps."""

    def __init__(self, path: Path, num_threads: int) -> None:
        self._lib = _declare(ctypes.CDLL(str(path)))
        self._threads = num_threads

    def serves(self, dtype: torch.dtype) -> bool:
        """Whether this processor was built for with the instructions that make whole steps worth it."""
        return dtype in CACHE_CODES and bool(self._lib.motet_step_dtypes() & 1 << CACHE_CODES[dtype])

    def packed_bytes(self, dtype: torch.dtype, outputs: int, inputs: int) -> int:
        return int(self._lib.motet_packed_bytes(_code(dtype), outputs, inputs))

    def pack(self, weight: Tensor, to: int, every: int = 1) -> None:
        """`weight` [out, in] into each `every`th block from the address `to` on."""
        assert weight.is_contiguous()
        outputs, inputs = weight.shape
        code = _code(weight.dtype)
        self._lib.motet_pack(code, weight.data_ptr(), outputs, inputs, to, every, self._threads)

    def pack_factors(self, factors: Factors, to_a: int, to_b: int) -> None:
        rank, inputs = factors.a.shape
        outputs = factors.b.shape[1]
        a, b = factors.a, factors.b
        assert a.is_contiguous()
        assert b.is_contiguous()
        self._lib.motet_pack_factor(
            _code(a.dtype), a.data_ptr(), b.data_ptr(), rank, inputs, outputs, to_a, to_b
        )

    def scratch_bytes(self, model: CModel, rows: int, max_rank: int) -> int:
        return int(self._lib.motet_step_scratch(model, rows, max_rank))

    def step(self, dtype: torch.dtype, cache: torch.dtype, model: CModel, step: CStep) -> None:
        self._lib.motet_step(_code(dtype), CACHE_CODES[cache], model, step, self._threads)

    def head(self, dtype: torch.dtype, model: CModel, residual: Tensor, logits: Tensor, scratch: int) -> None:
        assert residual.is_contiguous()
        rows = residual.shape[0]
        self._lib.motet_head(
            _code(dtype), model, residual.data_ptr(), rows, logits.data_ptr(), scratch, self._threads
        )

    def float8(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """What an FP8 cache makes of float32 numbers (a multiple of 16): codes, and the numbers of these."""
        codes, again = torch.empty(len(numbers), dtype=torch.uint8), torch.empty(len(numbers))
        pointers = numbers.data_ptr(), codes.data_ptr(), again.data_ptr()
        self._lib.motet_float8(*pointers, len(numbers))
        return codes, again


class Arena:
    """Zeroed memory in huge pages where the system has them, handed out in parts of whole cache lines."""

    def __init__(self, num_bytes: int) -> None:
        self._map = mmap.mmap(-1, max(-(-num_bytes // HUGE_PAGE) * HUGE_PAGE, HUGE_PAGE))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._array = np.frombuffer(self._map, np.uint8)
        self._start, self._size = self._array.ctypes.data, len(self._map)
        self._used = 0

    def take(self, num_bytes: int) -> int:
        """The address of a new part."""
        at = self._used
        self._used += _line(num_bytes)
        assert self._used <= self._size
        return self._start + at


@dataclass(frozen=True, slots=True)
class _Installed:
    adapter: KernelAdapter
    arena: Arena
    touched: NDArray[np.uint8]  # [layers * groups]
    max_rank: int


class NativeSlots:
    """Which adapter each slot holds, packed: `AdapterSlots`."""

    def __init__(
        self,
        library: NativeLibrary,
        dtype: torch.dtype,
        num_slots: int,
        num_layers: int,
        sites: Mapping[str, tuple[int, int]],
    ) -> None:
        self._library = library
        self._dtype = dtype
        self._num_layers = num_layers
        self._sites = dict(sites)
        self.factors = (CPackedFactor * (max(num_slots, 1) * num_layers * len(SITES)))()
        self._installed: list[_Installed | None] = [None] * num_slots

    def install(self, slot: int, adapter: KernelAdapter) -> None:
        self.clear(slot)
        modules = {where: self._in_form(factors) for where, factors in adapter.modules.items()}
        arena = Arena(sum(_line(a) + _line(b) for a, b in map(_factor_bytes, modules.values())))
        touched = np.zeros((self._num_layers, len(GROUPS)), np.uint8)
        for (layer, site), factors in sorted(modules.items(), key=lambda item: item[0][0]):
            assert (factors.a.shape[1], factors.b.shape[1]) == self._sites[site]
            a, b = map(arena.take, _factor_bytes(factors))
            self._library.pack_factors(factors, a, b)
            entry = self.factors[(slot * self._num_layers + layer) * len(SITES) + SITES.index(site)]
            entry.a, entry.b, entry.rank, entry.scale = a, b, factors.rank, factors.scale
            entry.is_bfloat16 = factors.a.dtype is torch.bfloat16
            touched[layer, _GROUP_INDEX[site]] = 1
        self._installed[slot] = _Installed(adapter, arena, touched.reshape(-1), max(adapter.max_rank, 1))

    def clear(self, slot: int) -> None:
        size = self._num_layers * len(SITES) * ctypes.sizeof(CPackedFactor)
        ctypes.memset(ctypes.addressof(self.factors) + slot * size, 0, size)
        self._installed[slot] = None

    def installed(self, slot: int) -> _Installed:
        found = self._installed[slot]
        assert found is not None, f"slot {slot} is empty, but a row of the plan uses it"
        return found

    def _in_form(self, factors: Factors) -> Factors:
        """bfloat16 beside bfloat16 activations, else exact in float32."""
        if self._dtype is torch.bfloat16 and factors.a.dtype is torch.bfloat16 is factors.b.dtype:
            return factors
        return Factors(factors.a.float(), factors.b.float(), factors.scale)


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A step for one call; `c` but for the residual and the scratch, which the model adds."""

    c: CStep
    num_tokens: int
    numbers: NDArray[np.int32]  # what `c` points to
    touched: NDArray[np.uint8] | None
    slots: NativeSlots

    @property
    def tokens(self) -> Tensor:
        return torch.from_numpy(self.numbers[: self.num_tokens])


class NativeKernels:
    """The parts of `engine.kernels.shapes.Kernels` around a model that computes whole steps."""

    def __init__(self, library: NativeLibrary, dtype: torch.dtype) -> None:
        self._library = library
        self._dtype = dtype

    def new_cache(
        self,
        shape: AttentionShape,
        num_blocks: int,
        dtype: torch.dtype,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
    ) -> LayerCache:
        return new_cache(shape, num_blocks, dtype, key_scale, value_scale)

    def new_slots(self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]) -> NativeSlots:
        return NativeSlots(self._library, self._dtype, num_slots, num_layers, sites)

    def plan(self, shape: AttentionShape, rows: Sequence[Row], slots: AdapterSlots) -> NativeStep:
        assert isinstance(slots, NativeSlots)
        tokens: list[int] = []
        chunks: list[int] = []
        tables: list[int] = []
        most = max(1, MAX_GROUPED // 2 // shape.group)
        for row in rows:
            count, start, first, table = len(row.tokens), row.start, len(tokens), len(tables)
            tokens += row.tokens
            tables += row.block_table
            for done in range(0, count, most):
                chunks += (first + done, min(most, count - done), start + done, table)
        order, runs = _places([(row.slot, len(row.tokens)) for row in rows], len(tokens))
        parts = (tokens, order, chunks, runs, tables)
        numbers = np.array([number for part in parts for number in part], np.int32)
        at = [numbers.ctypes.data]
        for part in parts:
            at.append(at[-1] + 4 * len(part))
        held = [slots.installed(slot) for slot in set(runs[::3])]
        touched = np.bitwise_or.reduce([each.touched for each in held]) if held else None
        c = CStep(tokens=at[0], order=at[1], chunks=at[2], runs=at[3], tables=at[4])
        c.num_tokens, c.num_chunks, c.num_runs = len(tokens), len(chunks) // 4, len(runs) // 3
        c.max_rank = max((each.max_rank for each in held), default=0)
        c.factors = ctypes.addressof(slots.factors)
        c.touched = touched.ctypes.data if touched is not None else None
        return NativeStep(c, len(tokens), numbers, touched, slots)


def _places(rows: Sequence[tuple[int, int]], num_tokens: int) -> tuple[Sequence[int], list[int]]:
    """For rows of (slot, number of tokens): the token at each place of the products, and runs of (slot, first
    place, count), none across two groups of rows. Rows of a slot lie side by side, so that its factors are
    read once."""
    if all(slot < 0 for slot, _ in rows):
        return range(num_tokens), []
    by_slot: dict[int, list[int]] = {}
    token = 0
    for slot, count in rows:
        by_slot.setdefault(slot, []).extend(range(token, token + count))
        token += count
    groups = -(-num_tokens // TILE_ROWS)
    group_rows = -(-num_tokens // groups)  # as `Places` in step.h
    order: list[int] = []
    runs: list[int] = []
    for slot, members in sorted(by_slot.items()):
        place, end = len(order), len(order) + len(members)
        order += members
        while slot >= 0 and place < end:
            count = min(end, (place // group_rows + 1) * group_rows) - place
            runs += (slot, place, count)
            place += count
    return order, runs


def _factor_bytes(factors: Factors) -> tuple[int, int]:
    """Of A in rows of whole vectors, and of B in blocks of whole steps (gemm.h)."""
    rank, inputs = factors.a.shape
    per_step = 4 // factors.a.itemsize
    steps = -(-rank // per_step)
    width = -(-inputs // (2 * LANES)) * 2 * LANES
    return rank * width * factors.a.itemsize, -(-factors.b.shape[1] // LANES) * steps * 4 * LANES


def _line(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


_GROUP_INDEX = {site: index for index, members in enumerate(GROUPS.values()) for site in members}


def _code(dtype: torch.dtype) -> int:
    return int(dtype is torch.bfloat16)


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    model, step = POINTER(CModel), POINTER(CStep)
    functions: dict[str, tuple[object, list[object]]] = {
        "motet_step_dtypes": (c_int, []),
        "motet_packed_bytes": (c_int64, [c_int, c_int64, c_int64]),
        "motet_pack": (None, [c_int, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int]),
        "motet_pack_factor": (None, [c_int, c_void_p, c_void_p, *[c_int64] * 3, c_void_p, c_void_p]),
        "motet_step_scratch": (c_int64, [model, c_int64, c_int64]),
        "motet_step": (None, [c_int, c_int, model, step, c_int]),
        "motet_float8": (None, [*[c_void_p] * 3, c_int64]),
        "motet_head": (None, [c_int, model, c_void_p, c_int64, c_void_p, c_void_p, c_int]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
