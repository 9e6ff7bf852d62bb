"""Whole forward steps in C++ (docs/decisions/0010) through ctypes: the structs, mirrored from step.h, and the
functions of cpu.cpp. ctypes lets go of the GIL for each call."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from engine.kernels.lora import GROUPS, Factors

CACHE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2}


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
