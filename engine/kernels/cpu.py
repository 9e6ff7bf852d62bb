"""The C++ kernels, called with the addresses of contiguous tensors. ctypes lets go of the GIL for each
call."""

from __future__ import annotations

import ctypes
import logging
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from engine.kernels.build import BuildFailed, built_library
from engine.kernels.lora import CLoraRows, CSite, LoraStep
from engine.kernels.reference import ReferenceKernels
from engine.kernels.shapes import (
    MAX_GROUPED,
    MAX_HEAD_DIM,
    AttentionShape,
    Chunks,
    HeadNorms,
    HostOps,
    LayerCache,
)

_log = logging.getLogger(__name__)


class CShape(ctypes.Structure):
    """Mirrors `Shape` in cpu.cpp."""

    _fields_ = (
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("padded_dim", c_int64),
        ("block_size", c_int64),
        ("scale", c_float),
        ("norm_eps", c_float),
    )


def open_kernels(num_threads: int) -> HostOps:
    """The C++ kernels, or their twins where they can't be built (with a warning that says what it costs)."""
    try:
        return CpuKernels(built_library(), num_threads)
    except (BuildFailed, OSError) as error:
        _log.warning(
            "the C++ kernels are not available, so attention and LoRA run on slow torch code "
            "(tens of times slower for many rows): %s",
            error,
        )
        return ReferenceKernels()


class CpuKernels:
    def __init__(self, library: Path, num_threads: int) -> None:
        self._threads = num_threads
        self._lib = _declare(ctypes.CDLL(str(library)))
        self._shapes: dict[AttentionShape, CShape] = {}
        self._twins = ReferenceKernels()  # for caches in FP8, which C++ doesn't read yet
        assert self._lib.motet_max_grouped() == MAX_GROUPED
        assert self._lib.motet_max_head_dim() == MAX_HEAD_DIM

    def add_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        rows, width = residual.shape
        out = torch.empty(rows, width, dtype=weight.dtype)
        added = delta.data_ptr() if delta is not None else None
        self._lib.motet_add_norm(
            _code(weight),
            residual.data_ptr(),
            added,
            weight.data_ptr(),
            out.data_ptr(),
            rows,
            width,
            eps,
            self._threads,
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, width, dtype=gate_up.dtype)
        self._lib.motet_silu_mul(
            _code(gate_up), gate_up.data_ptr(), out.data_ptr(), rows, width, self._threads
        )
        return out

    def rotate_and_store(
        self,
        shape: AttentionShape,
        chunks: Chunks,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        if cache.is_fp8:
            return self._twins.rotate_and_store(shape, chunks, qkv, norms, cos_sin, cache)
        q = torch.empty(qkv.shape[0], shape.num_heads, shape.head_dim)
        self._lib.motet_rotate_and_store(
            _code(qkv),
            self._c_shape(shape),
            chunks.rows.data_ptr(),
            chunks.rows.shape[0],
            chunks.tables.data_ptr(),
            qkv.data_ptr(),
            norms.query.data_ptr() if norms else None,
            norms.key.data_ptr() if norms else None,
            cos_sin.data_ptr(),
            q.data_ptr(),
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            self._threads,
        )
        return q

    def attend(self, shape: AttentionShape, chunks: Chunks, q: Tensor, cache: LayerCache) -> Tensor:
        if cache.is_fp8:
            return self._twins.attend(shape, chunks, q, cache)
        out = torch.empty(q.shape[0], shape.num_heads * shape.head_dim, dtype=cache.keys.dtype)
        self._lib.motet_attend(
            _code(cache.keys),
            self._c_shape(shape),
            chunks.rows.data_ptr(),
            chunks.rows.shape[0],
            chunks.tables.data_ptr(),
            q.data_ptr(),
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            out.data_ptr(),
            self._threads,
        )
        return out

    def lora(self, step: LoraStep, layer: int, group: str, x: Tensor, y: Tensor) -> None:
        if (layer, group) not in step.touched:
            return
        sites = step.table.c_sites[layer, group]
        self._lib.motet_lora(
            _code(x),
            step.c_rows,
            sites,
            len(sites),
            x.data_ptr(),
            y.data_ptr(),
            y.shape[1],
            self._threads,
        )

    def _c_shape(self, shape: AttentionShape) -> CShape:
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = CShape(
                shape.num_heads,
                shape.num_kv_heads,
                shape.head_dim,
                shape.padded_dim,
                shape.block_size,
                shape.scale,
                shape.norm_eps,
            )
        return found


def _code(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return int(tensor.dtype is torch.bfloat16)


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    shape = POINTER(CShape)
    arguments = {
        "motet_add_norm": [c_int, *[c_void_p] * 4, c_int64, c_int64, c_float, c_int],
        "motet_silu_mul": [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int],
        "motet_rotate_and_store": [c_int, shape, c_void_p, c_int64, *[c_void_p] * 8, c_int],
        "motet_attend": [c_int, shape, c_void_p, c_int64, *[c_void_p] * 5, c_int],
        "motet_lora": [
            c_int,
            POINTER(CLoraRows),
            POINTER(CSite),
            c_int64,
            c_void_p,
            c_void_p,
            c_int64,
            c_int,
        ],
    }
    for name, types in arguments.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = types, None
    return lib
