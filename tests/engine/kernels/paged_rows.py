"""Rows over a paged cache in the GPU's layout, with everything that no kernel may read made poisonous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.attention_plan import AttentionPlan, AttentionRows, build_plan, new_plan, new_rows
from engine.kernels.reference_gpu import Cells
from engine.kernels.shapes import AttentionShape, LayerCache
from tests.engine.kernels.interpreter import DEVICE

NO_BLOCK = 2**30  # far outside of any cache


@dataclass(frozen=True)
class PagedSequence:
    """One row: `count` tokens from `position` on. Its numbers follow from `name`, wherever it lies."""

    count: int
    position: int
    name: int = 0


@dataclass
class Pages:
    """A cache that is NaN but where sequences wrote, tables that lead nowhere beyond their sequences, and
    tokens that are NaN in padding."""

    shape: AttentionShape
    rows: AttentionRows
    plan: AttentionPlan
    cache: LayerCache
    q: Tensor

    @property
    def num_tokens(self) -> int:
        return int(self.plan.counts[2])


def lay_out(
    shape: AttentionShape,
    sequences: Sequence[PagedSequence],
    *,
    max_rows: int = 0,
    capacity: int = 0,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    scales: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> Pages:
    lengths = [each.position + each.count for each in sequences]
    num_blocks = sum(-(-length // shape.block_size) for length in lengths) + 3
    scattered = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
    halves = [
        torch.full((num_blocks, shape.num_kv_heads, shape.block_size, shape.head_dim), torch.nan)
        for _ in range(2)
    ]
    num_tokens = sum(each.count for each in sequences)
    capacity = capacity or num_tokens + 3
    q = torch.full((capacity, shape.num_heads, shape.head_dim), torch.nan)
    max_blocks = max([-(-length // shape.block_size) for length in lengths], default=1) + 1
    rows = new_rows(max_rows or len(sequences) + 2, max_blocks, DEVICE)
    write_rows(shape, rows, sequences, scattered)
    for row, each in enumerate(sequences):
        numbers = torch.Generator().manual_seed(each.name * 1_000_003 + 17)
        first = int(rows.first_token[row])
        places = torch.arange(lengths[row])
        cells = rows.block_tables[row].cpu().long()[places // shape.block_size] * shape.block_size
        cells += places % shape.block_size
        for half in halves:
            Cells(half)[cells] = _draw(numbers, lengths[row], shape.num_kv_heads, shape.head_dim)
        queries = _draw(numbers, lengths[row], shape.num_heads, shape.head_dim)
        q[first : first + each.count] = queries[each.position :]
    plan = new_plan(shape, rows.num_tokens.shape[0], capacity, DEVICE)
    build_plan(rows, plan, shape)
    keys, values = (half.to(DEVICE, kv_dtype or dtype) for half in halves)
    return Pages(shape, rows, plan, LayerCache(keys, values, *scales), q.to(DEVICE, dtype))


def write_rows(
    shape: AttentionShape, rows: AttentionRows, sequences: Sequence[PagedSequence], blocks: Tensor
) -> None:
    """Into the same tensors, as a captured graph would find them."""
    rows.block_tables.fill_(NO_BLOCK)
    for stale in (rows.first_token, rows.num_tokens, rows.position):
        stale.fill_(NO_BLOCK)
    token = used = 0
    for row, each in enumerate(sequences):
        needed = -(-(each.position + each.count) // shape.block_size)
        rows.block_tables[row, :needed] = blocks[used : used + needed]
        rows.first_token[row], rows.num_tokens[row] = token, each.count
        rows.position[row] = each.position
        token += each.count
        used += needed
    rows.num_rows.fill_(len(sequences))


def _draw(generator: torch.Generator, length: int, *shape: int) -> Tensor:
    """A shorter sequence of the same name is the start of a longer one."""
    return torch.randn(max(length, 640), *shape, generator=generator)[:length]
