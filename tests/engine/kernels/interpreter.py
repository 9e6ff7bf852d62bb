"""Triton's interpreter, mended where it computes other numbers than the compiler's code.

It keeps bfloat16 as the 16 bits of it. As of 3.9 a `tl.dot` multiplies these bits as integers, and a
conversion from float32 cuts off instead of rounding to nearest even, as the hardware does. A conversion to
float8_e4m3fn loses carries and NaN, one from it loses NaN. What stays broken
is plain arithmetic on bfloat16 (`x + 1.0`): kernels convert to float32 first, which they want anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

DEVICE = "cpu" if triton.knobs.runtime.interpret else "cuda"  # of tests that serve for both


def mend_interpreter() -> None:
    """Harmless when done twice."""
    builder: Any = interpreter.InterpreterBuilder
    if getattr(builder, "mended", False):
        return
    cast, dot, convert = builder.cast_impl, builder.create_dot, builder.create_fp_to_fp

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, _widened(a), _widened(b), *rest)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if (source.dtype.scalar, target.scalar) == (tl.bfloat16, tl.float32):
            return _widened(source)
        if (source.dtype.scalar, target.scalar) == (tl.float32, tl.bfloat16):
            rounded = torch.from_numpy(np.array(source.data)).to(torch.bfloat16)
            return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)
        return cast(self, source, target)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if tl.float8e4nv not in (source.dtype.scalar, target.scalar):
            return convert(self, source, target, rounding)
        return _from_torch(_to_torch(source).to(_TORCH[target.scalar]), target.scalar)

    builder.create_dot, builder.cast_impl, builder.mended = create_dot, cast_impl, True
    builder.create_fp_to_fp = create_fp_to_fp


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return interpreter.TensorHandle(wide, tl.float32)


_TORCH = {
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
}


def _to_torch(handle: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(handle.data)).view(_TORCH[handle.dtype.scalar])


def _from_torch(tensor: torch.Tensor, dtype: Any) -> Any:
    bits = {tl.bfloat16: torch.uint16, tl.float8e4nv: torch.uint8}.get(dtype, tensor.dtype)
    return interpreter.TensorHandle(tensor.view(bits).numpy(), dtype)
