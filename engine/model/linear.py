"""Linear layers whose bits don't depend on how many rows are in the product (docs/decisions/0004).

oneDNN's bfloat16 products were measured bit-equal for 2 to 256 rows; every shape is probed again when it
is packed, and one that fails is computed in pieces of a fixed number of rows instead. float32 makes no such
promise.

oneDNN compiles a kernel of about a megabyte for each number of rows that it meets. So products are padded to
few of them (`padded_rows`): else memory grows with every new size of a crowd, and each costs a compilation.

Layers in FP8 (docs/decisions/0014) quantize what they are given, token by token, themselves: whoever else
reads it, as LoRA does, reads it as it was.
"""

from __future__ import annotations

import bisect
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelRefused
from engine.model.quantization import E4M3, quantize_rows

MOST_ROWS = 256
SIZES = (2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, MOST_ROWS)
FIXED_ROWS = 16
ROWS_HINT = 16  # oneDNN packs for about this many rows

_log = logging.getLogger(__name__)


def padded_rows(rows: int) -> int:
    """The next of `SIZES`; beyond the last, its next multiple."""
    if rows > MOST_ROWS:
        return -(-rows // MOST_ROWS) * MOST_ROWS
    return SIZES[bisect.bisect_left(SIZES, rows)]


class Linear(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] → [rows, out], contiguous and writable."""
        ...


class PlainLinear:
    """The twin of `PackedLinear`, and what serves where oneDNN doesn't."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """`weight` [out, in] in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise
        self._outputs, inputs = weight.shape
        self._fixed = weight.dtype is torch.bfloat16 and not self._rows_are_free(inputs)

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if self._fixed:
            return self._pieces(_pad(x, -(-rows // FIXED_ROWS) * FIXED_ROWS), FIXED_ROWS)[:rows]
        if rows > MOST_ROWS:
            return self._pieces(_pad(x, padded_rows(rows)), MOST_ROWS)[:rows]
        return self._multiply(_pad(x, padded_rows(rows)))[:rows]

    def _multiply(self, x: Tensor) -> Tensor:
        product: Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return product

    def _pieces(self, x: Tensor, size: int) -> Tensor:
        """`x` has a multiple of `size` rows."""
        out = torch.empty(x.shape[0], self._outputs, dtype=x.dtype)
        for start in range(0, x.shape[0], size):
            out[start : start + size] = self._multiply(x[start : start + size])
        return out

    def _rows_are_free(self, inputs: int) -> bool:
        """Whether rows of this shape's product keep their bits in every number of rows that is used."""
        return _probe(self._outputs, inputs, self._bias is not None, torch.get_num_threads())


def _pad(x: Tensor, rows: int) -> Tensor:
    missing = rows - x.shape[0]
    return functional.pad(x, (0, 0, 0, missing)) if missing else x


@functools.cache
def _probe(outputs: int, inputs: int, biased: bool, num_threads: int) -> bool:
    generator = torch.Generator().manual_seed(outputs * 31 + inputs)
    outputs = min(outputs, 49_152)
    weight = torch.randn(outputs, inputs, generator=generator).mul_(0.05).bfloat16()
    bias = torch.randn(outputs, generator=generator).bfloat16() if biased else None
    x = torch.randn(MOST_ROWS, inputs, generator=generator).bfloat16()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
    whole = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    for rows in SIZES:
        some = torch.ops.mkldnn._linear_pointwise(x[:rows].contiguous(), packed, bias, "none", [], "")
        if not torch.equal(some, whole[:rows]):
            _log.warning(
                "bfloat16 products of shape %d x %d depend on the number of rows here; "
                "they are computed %d rows at a time, which is slower",
                outputs, inputs, FIXED_ROWS,
            )  # fmt: skip
            return False
    return True


Quantize = Callable[[Tensor], tuple[Tensor, Tensor]]
"""[rows, width] → codes and float32 scales [rows, 1], as `quantization.quantize_rows` does."""


class Fp8Linear:
    """On a CPU: what a GPU computes from FP8, by products of the same codes in the model's dtype, which holds
    them exactly. In bfloat16 a sum of codes is rounded once before the scales apply, and the result once
    after (a GPU rounds the result alone); a row's bits don't depend on its batch, since no step mixes
    rows."""

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """`codes` e4m3 [out, in], `scale` float32 [out, 1]."""
        self._product = _new_product(codes.to(dtype), None)
        self._scale = scale.t().contiguous()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        codes, scale = quantize_rows(x)
        y = self._product(codes.to(x.dtype)).float() * scale * self._scale
        if self._bias is not None:
            y += self._bias.float()
        return y.to(x.dtype)


class Fp8CudaLinear:
    """On Hopper and later: products of codes by `torch._scaled_mm`, with a scale for each row of either side.
    In and out must be multiples of 16. `use_fast_accum` keeps 22 bits of a partial sum, as FP8 serving
    usually does.
    """

    def __init__(
        self, codes: Tensor, scale: Tensor, bias: Tensor | None, quantize: Quantize = quantize_rows
    ) -> None:
        if codes.shape[0] % 16 or codes.shape[1] % 16:
            raise ModelRefused(f"FP8 weights of {list(codes.shape)} are not served: not multiples of 16")
        self._codes = codes.contiguous().t()  # column-major, as the product wants its second factor
        self._scale = scale.reshape(1, -1)
        self._bias = bias
        self._quantize = quantize

    def __call__(self, x: Tensor) -> Tensor:
        codes, scale = self._quantize(x)
        product: Tensor = torch._scaled_mm(
            codes,
            self._codes,
            scale_a=scale,
            scale_b=self._scale,
            bias=self._bias,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )
        return product


def new_linear(
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    quantize: Quantize = quantize_rows,
) -> Linear:
    """`scale` [out, 1] comes with a weight in FP8, and only with it; `dtype` is then that of what comes in
    and goes out, and `quantize` what turns it into codes on a GPU. Raises `ModelRefused` on a GPU without
    FP8."""
    if scale is None:
        return PlainLinear(weight, bias) if weight.is_cuda else _new_product(weight, bias)
    assert weight.dtype is E4M3
    if not weight.is_cuda:
        return Fp8Linear(weight, scale, bias, dtype)
    if torch.cuda.get_device_capability(weight.device) < (9, 0):
        raise ModelRefused("FP8 weights need a GPU of compute capability 9.0 (Hopper) or later")
    return Fp8CudaLinear(weight, scale, bias, quantize)


def fused_linear(
    weights: Mapping[str, Tensor],
    modules: Sequence[str],
    dtype: torch.dtype,
    quantize: Quantize = quantize_rows,
) -> Linear:
    """One product for linear modules that read the same input: all of them have a bias, or none, and all are
    in FP8, or none. Raises `ModelRefused` for a mixture."""
    scales = [weights.get(f"{module}.weight_scale") for module in modules]
    biases = [weights.get(f"{module}.bias") for module in modules]
    if any(scale is None for scale in scales) and any(scale is not None for scale in scales):
        raise ModelRefused(f"of {', '.join(modules)} some are in FP8 and some are not, which is not served")
    weight = torch.cat([weights[f"{module}.weight"] for module in modules])
    return new_linear(weight, _joined(biases), _joined(scales), dtype, quantize)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None


def _new_product(weight: Tensor, bias: Tensor | None) -> Linear:
    if not torch._C._has_mkldnn:
        return PlainLinear(weight, bias)
    if weight.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return PlainLinear(weight, bias)
    return PackedLinear(weight, bias)
