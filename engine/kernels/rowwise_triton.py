"""What is computed a row at a time on a GPU (Triton): RMS norm with the residual sum, SiLU and product, and
FP8 codes of activations with a scale for each token.

The codes come beside the activations, not instead: LoRA reads what was not quantized. They are made of the
activations as stored (rounded to their dtype), so that a quantized product and LoRA see the same numbers.
A row's bits don't depend on the other rows: each program computes whole rows, or parts of them that need
nothing of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_WIDTH = 32_768  # of a row that one program holds in registers
SMALLEST_SCALE = 2.0**-100  # as in engine.model.quantization
_STRIP = 1024


@dataclass(frozen=True, slots=True)
class Codes:
    """FP8 activations, as `torch._scaled_mm` takes them with scales by row."""

    codes: Tensor  # float8_e4m3fn [rows, width]
    scale: Tensor  # float32 [rows, 1]


def new_codes(rows: int, width: int, device: torch.device | str) -> Codes:
    return Codes(
        torch.zeros(rows, width, dtype=torch.float8_e4m3fn, device=device),
        torch.ones(rows, 1, dtype=torch.float32, device=device),
    )


def add_norm(
    residual: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    eps: float,
    out: Tensor,
    codes: Codes | None = None,
) -> None:
    """`residual` (float32 [rows, width]) += `delta` ([rows, width], any float dtype), in place; its RMS norm
    times `weight` [width] into `out` [rows, width], and with `codes` also quantized. One launch."""
    rows, width = residual.shape
    _check(width, residual, out, *(() if delta is None else (delta,)))
    _add_norm_kernel[(rows,)](
        residual, residual if delta is None else delta, weight, out,
        *_codes_or(codes, residual), width, eps, SMALLEST_SCALE,
        WIDTH=padded_width(width), ADD=delta is not None, QUANTIZE=codes is not None,
        num_warps=num_warps(width),
    )  # fmt: skip


def silu_mul(gate_up: Tensor, out: Tensor, codes: Codes | None = None) -> None:
    """silu(gate) * up of `gate_up` [rows, 2 * width] into `out` [rows, width], and with `codes` also
    quantized. One launch."""
    rows, width = out.shape
    assert gate_up.shape == (rows, 2 * width)
    _check(width, gate_up, out)
    if codes is None:
        _silu_mul_kernel[(rows, triton.cdiv(width, _STRIP))](gate_up, out, width, STRIP=_STRIP, num_warps=4)
        return
    _silu_mul_codes_kernel[(rows,)](
        gate_up, out, codes.codes, codes.scale, width, SMALLEST_SCALE,
        WIDTH=padded_width(width), num_warps=num_warps(width),
    )  # fmt: skip


def quantize_rows(x: Tensor, codes: Codes) -> None:
    """`engine.model.quantization.quantize_rows` into `codes`: what no other kernel here writes (the output of
    attention). `x` [rows, width], float32 or bfloat16. One launch."""
    rows, width = x.shape
    _check(width, x)
    _quantize_kernel[(rows,)](
        x, codes.codes, codes.scale, width, SMALLEST_SCALE,
        WIDTH=padded_width(width), num_warps=num_warps(width),
    )  # fmt: skip


def _check(width: int, *tensors: Tensor) -> None:
    assert width <= MOST_WIDTH
    assert all(tensor.is_contiguous() for tensor in tensors)


def _codes_or(codes: Codes | None, other: Tensor) -> tuple[Tensor, Tensor]:
    return (other, other) if codes is None else (codes.codes, codes.scale)


def padded_width(width: int) -> int:
    return 1 << (width - 1).bit_length()


def num_warps(width: int) -> int:
    """So that a thread holds at most 32 numbers of a row up to 32,768: those beyond would be spilled."""
    return min(32, max(4, padded_width(width) // 1024))


@triton.jit
def saturated(x: tl.tensor) -> tl.tensor:
    """float32 brought into the range of float8_e4m3fn: ±448, and NaN for what is not finite (an infinity that
    ended at 448 would pass for a number)."""
    most: tl.constexpr = 448.0
    finite = tl.abs(x) < float("inf")
    return tl.where(finite, tl.minimum(tl.maximum(x, -most), most), float("nan"))


@triton.jit
def _put_codes(
    x: tl.tensor, codes: tl.tensor, scales: tl.tensor, row: tl.tensor, width: tl.tensor, column: tl.tensor,
    smallest: tl.tensor,
) -> None:  # fmt: skip
    """`x` float32 [WIDTH], zero beyond the row."""
    scale = tl.maximum(tl.div_rn(tl.max(tl.abs(x), 0), 448.0), smallest)
    coded = saturated(tl.div_rn(x, scale)).to(tl.float8e4nv)
    tl.store(codes + row.to(tl.int64) * width + column, coded, mask=column < width)
    tl.store(scales + row, scale)


@triton.jit
def _add_norm_kernel(
    residual: tl.tensor, delta: tl.tensor, weight: tl.tensor, out: tl.tensor,
    codes: tl.tensor, scales: tl.tensor, width: tl.tensor, eps: tl.tensor, smallest: tl.tensor,
    WIDTH: tl.constexpr, ADD: tl.constexpr, QUANTIZE: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    mask = column < width
    at = row.to(tl.int64) * width + column
    x = tl.load(residual + at, mask=mask, other=0.0)
    if ADD:
        x += tl.load(delta + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(residual + at, x, mask=mask)
    strength = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    normed = x * strength * tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    stored = normed.to(out.dtype.element_ty)
    tl.store(out + at, stored, mask=mask)
    if QUANTIZE:
        _put_codes(stored.to(tl.float32), codes, scales, row, width, column, smallest)


@triton.jit
def _silu_mul(gate_up: tl.tensor, row: tl.tensor, width: tl.tensor, column: tl.tensor) -> tl.tensor:
    at = gate_up + row.to(tl.int64) * 2 * width + column
    gate = tl.load(at, mask=column < width, other=0.0).to(tl.float32)
    up = tl.load(at + width, mask=column < width, other=0.0).to(tl.float32)
    return gate / (1.0 + tl.exp(tl.minimum(-gate, 88.0))) * up  # e^89 would overflow


@triton.jit
def _silu_mul_kernel(gate_up: tl.tensor, out: tl.tensor, width: tl.tensor, STRIP: tl.constexpr) -> None:
    row = tl.program_id(0)
    column = tl.program_id(1) * STRIP + tl.arange(0, STRIP)
    x = _silu_mul(gate_up, row, width, column)
    at = out + row.to(tl.int64) * width + column
    tl.store(at, x.to(out.dtype.element_ty), mask=column < width)


@triton.jit
def _silu_mul_codes_kernel(
    gate_up: tl.tensor, out: tl.tensor, codes: tl.tensor, scales: tl.tensor, width: tl.tensor,
    smallest: tl.tensor, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    stored = _silu_mul(gate_up, row, width, column).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64) * width + column, stored, mask=column < width)
    _put_codes(stored.to(tl.float32), codes, scales, row, width, column, smallest)


@triton.jit
def _quantize_kernel(
    x: tl.tensor, codes: tl.tensor, scales: tl.tensor, width: tl.tensor, smallest: tl.tensor,
    WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    loaded = tl.load(x + row.to(tl.int64) * width + column, mask=column < width, other=0.0)
    _put_codes(loaded.to(tl.float32), codes, scales, row, width, column, smallest)
