"""The torch twins of the SGMV kernels, over the same arena and buffers: the obvious road, with host
synchronization wherever it is handy."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.adapter_arena import AdapterArena
from engine.kernels.lora import GROUPS, SITES
from engine.kernels.sgmv_plan import BASE


def sorted_blocks(token_slot: Tensor, num_tokens: int, block_rows: int) -> tuple[list[list[int]], list[int]]:
    """Twin of `SgmvPlanner.build`: the rows of each block, BASE filling it up, and the slot of each."""
    slots = token_slot[:num_tokens].tolist()
    blocks: list[list[int]] = []
    block_slot: list[int] = []
    for slot in sorted({slot for slot in slots if slot != BASE}):
        rows = [row for row, of_slot in enumerate(slots) if of_slot == slot]
        for start in range(0, len(rows), block_rows):
            block = rows[start : start + block_rows]
            blocks.append(block + [BASE] * (block_rows - len(block)))
            block_slot.append(slot)
    return blocks, block_slot


def add_lora(
    x: Tensor, token_slot: Tensor, num_tokens: int, arena: AdapterArena, layer: int, group: str, y: Tensor
) -> None:
    """Twin of `shrink` and `expand` together, in float32 but for `y`."""
    for slot in sorted(set(token_slot[:num_tokens].tolist()) - {BASE}):
        rows = torch.nonzero(token_slot[:num_tokens] == slot).flatten()
        column = 0
        for site in GROUPS[group]:
            inputs, outputs = arena.layout.sites[site]
            entry = layer, SITES.index(site), slot
            rank, a_at, b_at = (int(table[entry]) for table in (arena.rank, arena.a_at, arena.b_at))
            a = arena.data[a_at : a_at + rank * inputs].view(rank, inputs).float()
            b = arena.data[b_at : b_at + rank * outputs].view(rank, outputs).float()
            delta = x[rows].float() @ a.T @ b * arena.scale[entry]
            into = y[rows, column : column + outputs].float() + delta
            y[rows, column : column + outputs] = into.to(y.dtype)
            column += outputs
