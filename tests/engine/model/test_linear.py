"""Products keep their bits in every number of rows, and few numbers of rows reach oneDNN."""

from __future__ import annotations

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.linear import MOST_ROWS, SIZES, Linear, PackedLinear, PlainLinear, new_linear, padded_rows

INPUTS, OUTPUTS = 576, 1536
MOST_GROWTH_BYTES = 48 * 2**20


def linear_of(dtype: torch.dtype) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    weight = torch.randn(OUTPUTS, INPUTS, generator=draw).mul_(0.05).to(dtype)
    bias = torch.randn(OUTPUTS, generator=draw).to(dtype)
    return new_linear(weight, bias), weight, bias


@given(st.integers(1, 2_000))
def test_rows_are_padded_to_few_sizes(rows: int) -> None:
    padded = padded_rows(rows)
    assert padded >= rows
    assert padded in SIZES or padded % MOST_ROWS == 0
    assert padded - rows <= max(3, rows // 2, 0 if rows < MOST_ROWS else MOST_ROWS - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_product_is_the_twins(dtype: torch.dtype) -> None:
    linear, weight, bias = linear_of(dtype)
    twin = PlainLinear(weight, bias)
    for rows in (1, 2, 5, 17, 255, 256, 257, 600):
        x = torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(rows)).to(dtype)
        found = linear(x)
        assert found.shape == (rows, OUTPUTS)
        assert found.is_contiguous()
        torch.testing.assert_close(found, twin(x), atol=1e-3, rtol=2e-2)


def test_a_row_keeps_its_bits_in_any_crowd() -> None:
    linear, _, _ = linear_of(torch.bfloat16)
    x = torch.randn(300, INPUTS, generator=torch.Generator().manual_seed(1)).bfloat16()
    whole = linear(x)
    for rows in (1, 2, 3, 7, 9, 31, 33, 100, 129, 255, 256, 257):
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows])


def test_new_sizes_of_a_crowd_cost_no_memory() -> None:
    linear, _, _ = linear_of(torch.bfloat16)
    if not isinstance(linear, PackedLinear):
        pytest.skip("this machine has no oneDNN products in bfloat16")
    x = torch.randn(MOST_ROWS, INPUTS, generator=torch.Generator().manual_seed(2)).bfloat16()
    for rows in SIZES:
        linear(x[:rows].contiguous())
    process = psutil.Process()
    before = process.memory_info().rss
    for rows in range(1, MOST_ROWS + 1):
        linear(x[:rows].contiguous())
    assert process.memory_info().rss - before < MOST_GROWTH_BYTES
