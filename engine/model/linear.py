"""Linear layers whose bits don't depend on how many rows are in the product (docs/decisions/0004).

oneDNN's bfloat16 products were measured bit-equal for 2 to 256 rows; every shape is probed again when it
is packed, and one that fails is computed in pieces of a fixed number of rows instead. float32 makes no such
promise.

oneDNN compiles a kernel of about a megabyte for each number of rows that it meets. So products are padded to
few of them (`padded_rows`): else memory grows with every new size of a crowd, and each costs a compilation.
"""

from __future__ import annotations

import bisect
import functools
import logging
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

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


def new_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    if not torch._C._has_mkldnn:
        return PlainLinear(weight, bias)
    if weight.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return PlainLinear(weight, bias)
    return PackedLinear(weight, bias)
