"""Finds rows whose numbers went wrong, before anything of them is sampled, published or billed.

What is not finite in any layer stays so in the residual stream, which only ever adds: looking at its end is
enough, and it is looked at for every row of a step, prefill included. Such a row fails alone: its blocks get
no name, and whoever gets them next writes each position before reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

NOT_FINITE: Final = "the model's hidden state is not finite"


def bad_rows(residual: Tensor, counts: Sequence[int]) -> Tensor:
    """Which rows of a plan hold something that is not finite: bool [rows], on the residual's device.
    `residual`: float32 [>= sum(counts), hidden], the rows' tokens in order; what follows is padding."""
    largest = residual[: sum(counts)].abs().amax(dim=1)  # a NaN is the largest of all
    bad = torch.zeros(len(largest) + 1, dtype=torch.int32, device=residual.device)
    torch.cumsum(~largest.isfinite(), dim=0, out=bad[1:])
    ends = torch.tensor(counts, device=residual.device).cumsum(0)
    return bad[ends] > bad[ends - torch.tensor(counts, device=residual.device)]
