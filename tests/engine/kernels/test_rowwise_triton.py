"""Row-wise kernels for GPUs equal their twins, and a row's bits don't depend on its company."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels import rowwise_triton
from engine.kernels.reference import ReferenceKernels
from engine.kernels.rowwise_triton import add_norm, new_codes, silu_mul
from engine.model.quantization import quantize_rows
from tests.engine.kernels.hopper import HopperCompiler
from tests.engine.kernels.interpreter import DEVICE

DTYPES = [torch.float32, torch.bfloat16]
SIZES = [(1, 16), (3, 7), (2, 576), (5, 1025)]


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def near(ours: Tensor, wanted: Tensor) -> None:
    rtol = 1e-5 if wanted.dtype is torch.float32 else 2**-7
    torch.testing.assert_close(ours, wanted, rtol=rtol, atol=1e-6)


def same_codes(codes: rowwise_triton.Codes, x: Tensor) -> None:
    wanted, scale = quantize_rows(x.cpu())  # on a GPU torch divides by a number as it multiplies by 1 / it
    assert torch.equal(codes.scale.cpu(), scale)
    assert torch.equal(codes.codes.cpu().view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), SIZES)
@pytest.mark.parametrize("coded", [False, True])
def test_norm_and_residual_equal_their_twin(dtype: torch.dtype, rows: int, width: int, coded: bool) -> None:
    weight = draw(1, width, dtype=dtype)
    for delta in (draw(2, rows, width, dtype=dtype), None):
        ours, twins = draw(3, rows, width), draw(3, rows, width)
        out = torch.full((rows, width), torch.nan, dtype=dtype, device=DEVICE)
        codes = new_codes(rows, width, DEVICE) if coded else None
        add_norm(ours, delta, weight, 1e-5, out, codes)
        near(out, ReferenceKernels().add_norm(twins, delta, weight, 1e-5))
        assert torch.equal(ours, twins)
        if codes is not None:
            same_codes(codes, out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), SIZES)
@pytest.mark.parametrize("coded", [False, True])
def test_silu_equals_its_twin(dtype: torch.dtype, rows: int, width: int, coded: bool) -> None:
    gate_up = (draw(4, rows, 2 * width) * 60).to(dtype)  # far enough out for both ends of the exponential
    out = torch.full((rows, width), torch.nan, dtype=dtype, device=DEVICE)
    codes = new_codes(rows, width, DEVICE) if coded else None
    silu_mul(gate_up, out, codes)
    near(out, ReferenceKernels().silu_mul(gate_up))
    if codes is not None:
        same_codes(codes, out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_equal_their_twin_from_zero_to_huge(dtype: torch.dtype) -> None:
    sizes = torch.tensor([1.0, 1e-3, 1e-20, 1e-38, 0.0, 1e4, 1e30]).unsqueeze(1).to(DEVICE)
    x = (draw(5, len(sizes), 300) * sizes).to(dtype)
    codes = new_codes(len(sizes), 300, DEVICE)
    rowwise_triton.quantize_rows(x, codes)
    same_codes(codes, x)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinity over infinity is the point
def test_a_row_that_is_not_finite_is_found_in_its_codes_and_hurts_no_other() -> None:
    x = draw(6, 4, 64)
    clean = new_codes(4, 64, DEVICE)
    rowwise_triton.quantize_rows(x, clean)
    x[1, 3], x[2, 5] = torch.nan, -torch.inf
    codes = new_codes(4, 64, DEVICE)
    rowwise_triton.quantize_rows(x, codes)
    assert codes.codes[1, 3].float().isnan()
    assert codes.codes[2, 5].float().isnan()
    for row in (0, 3):
        assert torch.equal(codes.codes[row].view(torch.uint8), clean.codes[row].view(torch.uint8))
        assert codes.scale[row] == clean.scale[row]


def test_a_row_has_the_same_bits_in_any_company() -> None:
    residual, delta, weight = draw(7, 6, 577), draw(8, 6, 577).bfloat16(), draw(9, 577).bfloat16()
    gate_up = draw(10, 6, 2 * 577).bfloat16()
    results = []
    for rows in (slice(None), slice(4, 5)):
        count = len(residual[rows])
        out, inner = (torch.empty(count, 577, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        codes, inner_codes = new_codes(count, 577, DEVICE), new_codes(count, 577, DEVICE)
        add_norm(residual[rows].clone(), delta[rows], weight, 1e-5, out, codes)
        silu_mul(gate_up[rows], inner, inner_codes)
        plain = torch.empty_like(inner)
        silu_mul(gate_up[rows], plain)
        assert torch.equal(plain, inner)
        coded = [each.codes.view(torch.uint8) for each in (codes, inner_codes)]
        results.append([out, inner, *coded, codes.scale, inner_codes.scale])
    for crowd, alone in zip(*results, strict=True):
        assert torch.equal(crowd[4:5], alone)


@pytest.mark.parametrize(("hidden", "inner"), [(4096, 14336), (8192, 28672)], ids=["8B", "70B"])
def test_rows_of_llama_fit_a_hopper(hopper: HopperCompiler, hidden: int, inner: int) -> None:
    coded = {"codes": "*fp8e4nv", "scales": "*fp32", "width": "i32:16", "smallest": "fp32"}
    norm = hopper.compile(
        rowwise_triton._add_norm_kernel,
        {"residual": "*fp32", "delta": "*bf16", "weight": "*bf16", "out": "*bf16", "eps": "fp32"} | coded,
        {"WIDTH": rowwise_triton.padded_width(hidden), "ADD": True, "QUANTIZE": True},
        rowwise_triton.num_warps(hidden),
    )
    silu = hopper.compile(
        rowwise_triton._silu_mul_codes_kernel,
        {"gate_up": "*bf16", "out": "*bf16"} | coded,
        {"WIDTH": rowwise_triton.padded_width(inner)},
        rowwise_triton.num_warps(inner),
    )
    for compiled in (norm, silu):
        assert compiled.stack_bytes == 0
        assert "cvt.rn.satfinite.e4m3x2" in compiled.ptx
        assert "ld.global.v4.b32" in compiled.ptx
