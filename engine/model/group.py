"""The processes that compute one model together, and what they tell each other within a step."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from engine.model.sharding import Shard

COLLECTIVE_S = 60.0  # one that is not there for so long is dead


class Group:
    """`torch.distributed` over one host: gloo for CPUs, NCCL for GPUs. Every process must call the same
    methods in the same order."""

    def __init__(self, shard: Shard, meeting_point: Path, *, device: torch.device) -> None:
        """`meeting_point`: a path that does not exist yet, the same for all."""
        self.shard = shard
        self.device = device
        self._meeting_point = meeting_point

    def connect(self) -> None:
        """Waits until all are there. Raises `RuntimeError` (torch's own kinds) when one is not."""
        dist.init_process_group(
            "gloo" if self.device.type == "cpu" else "cpu:gloo,cuda:nccl",
            init_method=f"file://{self._meeting_point}",
            rank=self.shard.rank,
            world_size=self.shard.count,
            timeout=timedelta(seconds=COLLECTIVE_S),
        )

    def sum(self, partial: Tensor) -> Tensor:
        """The sum of every process's `partial`, in its dtype. On CPUs it is taken in float32 and in the order
        of ranks, so that a row's bits don't depend on the other rows (docs/decisions/0004); NCCL promises the
        same bits for the same shapes alone."""
        if self.device.type != "cpu":
            dist.all_reduce(partial)
            return partial
        total = torch.zeros(partial.shape)
        for part in self._gather(partial):
            total += part
        return total.to(partial.dtype)

    def join(self, columns: Tensor) -> Tensor:
        """Every process's columns beside each other, in the order of ranks: [rows, count * columns]."""
        return torch.cat(self._gather(columns), dim=1)

    def share(self, values: Tensor) -> None:
        """Rank 0's bytes (uint8, on a CPU) replace those of all others, in place."""
        dist.broadcast(values, src=0)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _gather(self, mine: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(mine) for _ in range(self.shard.count)]
        dist.all_gather(parts, mine.contiguous())
        return parts
