"""The two roads on which kernels are tested without a GPU tell the truth."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from tests.engine.kernels.hopper import HopperCompiler


@triton.jit
def product(a_at: tl.tensor, b_at: tl.tensor, c_at: tl.tensor, SIDE: tl.constexpr) -> None:
    row, column = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    at = row * SIDE + column
    c = tl.dot(tl.load(a_at + at), tl.load(b_at + at))
    tl.store(c_at + at, c.to(c_at.dtype.element_ty))


def test_the_interpreter_multiplies_and_rounds_bfloat16_like_torch() -> None:
    a, b = (torch.randn(16, 16, generator=torch.Generator().manual_seed(i)).bfloat16() for i in (1, 2))
    exact = a.float() @ b.float()
    c, rounded = torch.empty(16, 16), torch.empty(16, 16, dtype=torch.bfloat16)
    product[(1,)](a, b, c, SIDE=16)
    product[(1,)](a, b, rounded, SIDE=16)
    torch.testing.assert_close(c, exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(rounded, c.bfloat16())


def test_a_compiled_kernel_tells_what_it_takes(hopper: HopperCompiler) -> None:
    pointers = {"a_at": "*bf16", "b_at": "*bf16", "c_at": "*fp32"}
    tile = hopper.compile(product, pointers, {"SIDE": 64}, num_warps=4)
    assert "wgmma" in tile.ptx
    assert tile.stack_bytes == 0
    assert 0 < tile.registers <= 255
    assert tile.shared_bytes >= 2 * 64 * 64 * 2
    assert b"\x7fELF" in tile.cubin
    spilled = hopper.compile(product, pointers, {"SIDE": 128}, num_warps=1)
    assert spilled.stack_bytes > 0
    with pytest.raises(AssertionError, match="power of 2"):
        hopper.compile(product, pointers, {"SIDE": 63})
