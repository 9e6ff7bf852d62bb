"""Triton's interpreter, mended where it computes other numbers than the compiler's code.

It keeps bfloat16 as the 16 bits of it. As of 3.9 a `tl.dot` multiplies these bits as integers, and a
conversion from float32 cuts off instead of rounding to nearest even, as the hardware does. What stays broken
is plain arithmetic on bfloat16 (`x + 1.0`): kernels convert to float32 first, which they want anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def mend_interpreter() -> None:
    """Harmless when done twice."""
    builder: Any = interpreter.InterpreterBuilder
    if getattr(builder, "mended", False):
        return
    cast, dot = builder.cast_impl, builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, _widened(a), _widened(b), *rest)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if (source.dtype.scalar, target.scalar) == (tl.bfloat16, tl.float32):
            return _widened(source)
        if (source.dtype.scalar, target.scalar) == (tl.float32, tl.bfloat16):
            rounded = torch.from_numpy(np.array(source.data)).to(torch.bfloat16)
            return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)
        return cast(self, source, target)

    builder.create_dot, builder.cast_impl, builder.mended = create_dot, cast_impl, True


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return interpreter.TensorHandle(wide, tl.float32)
