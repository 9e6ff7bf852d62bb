"""A step's numbers in tensors that never move: written in pinned host memory, brought over by one copy, and
read on the device by captured graphs and by kernels launched one by one alike.

All of it is int32 in one flat buffer: counts, tokens with their sources and slots, rows, rows that sample,
and what changes in the block tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, Row
from engine.kernels.attention_plan import AttentionRows
from engine.model.block_lanes import BlockLanes
from engine.model.upload import Upload

ALIGNED = 16  # int32 numbers: each field starts where a vector load may
NO_SOURCE = -1
STEPS_AT_ONCE = 2
"""Steps submitted and not waited for. Each writes into host memory of its own: the copy of one may still run
while the next is written."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one step can hold."""

    rows: int
    tokens: int
    blocks: int  # of one sequence

    @property
    def changes(self) -> int:
        """Of block tables, in the one copy; more (prompts that arrive) go separately."""
        return 2 * self.rows + 2 * self.blocks


@dataclass(frozen=True, slots=True)
class StepSize:
    num_rows: int
    num_tokens: int
    num_sampled: int
    slots: frozenset[int]  # of adapters


class StepInputs:
    """The device's side, and the host's. Tensors of rows and tokens hold anything beyond their counts, but
    `token_slot` and `source` say "none" there."""

    def __init__(self, capacity: Capacity, device: torch.device) -> None:
        self.capacity = capacity
        self._device = device
        self._fields, size = _layout(capacity)
        pinned = device.type == "cuda"
        self._hosts = [
            torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(STEPS_AT_ONCE + 1)
        ]
        self._turn = 0
        self._flat = torch.zeros(size, dtype=torch.int32, device=device)
        self._lanes = BlockLanes(capacity.rows, capacity.blocks)
        self.num_rows = self._field("num_rows")
        self.num_tokens = self._field("num_tokens")
        self._tokens = self._field("tokens")
        self._source = self._field("source")
        self.token_slot = self._field("token_slot")
        self.sample_at = self._field("sample_at")
        self.first_token = self._field("first_token")
        self.row_tokens = self._field("row_tokens")
        self.position = self._field("position")
        self.block_tables = torch.zeros(capacity.rows, capacity.blocks, dtype=torch.int32, device=device)
        self.last_tokens = torch.zeros(capacity.rows, dtype=torch.int32, device=device)
        """What the last step sampled, by its rows that sample."""
        self._source.fill_(NO_SOURCE)
        self.token_slot.fill_(BASE_SLOT)

    def rows(self) -> AttentionRows:
        return AttentionRows(
            self.block_tables, self.first_token, self.row_tokens, self.position, self.num_rows
        )

    def tokens(self, num_rows: int) -> Tensor:
        """Token ids int32 [num_rows], those in flight taken from what the last step sampled."""
        tokens, source = self._tokens[:num_rows], self._source[:num_rows]
        return torch.where(source >= 0, self.last_tokens[source.clamp_min(0)], tokens)

    def send(self, rows: Sequence[Row], sampled_at: Mapping[int, int]) -> StepSize:
        """Bring a plan's rows to the device, on the current stream. `sampled_at`: the place of each sequence
        among the rows that the last step sampled."""
        self._turn = (self._turn + 1) % len(self._hosts)
        host = self._hosts[self._turn].numpy()
        fields = _Fields(host, self._fields)
        lanes, places, values = self._lanes.arrange(rows)
        size = self._write(fields, rows, lanes, sampled_at)
        fits = len(places) <= self.capacity.changes
        if fits:
            fields["places"][: len(places)] = places
            fields["values"][: len(values)] = values
        self._flat.copy_(self._hosts[self._turn], non_blocking=True)
        if len(places) > 0:
            changes = self._changes(len(places)) if fits else self._uploaded(places, values)
            self.block_tables.view(-1)[changes[0].long()] = changes[1]
        return size

    def _write(
        self, fields: _Fields, rows: Sequence[Row], lanes: list[int], sampled_at: Mapping[int, int]
    ) -> StepSize:
        counts = np.array([len(row.tokens) for row in rows], np.int32)
        firsts = np.cumsum(counts) - counts
        num_tokens = int(counts.sum())
        assert 0 < num_tokens <= self.capacity.tokens, "a step holds some tokens, and no more than it may"
        slots = np.array([row.slot for row in rows], np.int32)
        fields["num_rows"][:] = len(rows)
        fields["num_tokens"][:] = num_tokens
        fields["first_token"][lanes] = firsts
        fields["row_tokens"][lanes] = counts
        fields["position"][lanes] = [row.start for row in rows]
        fields["token_slot"][:num_tokens] = np.repeat(slots, counts)
        fields["token_slot"][num_tokens:] = BASE_SLOT
        fields["tokens"][:num_tokens] = [token for row in rows for token in row.tokens]
        fields["tokens"][num_tokens:] = 0
        self._write_sources(fields, rows, firsts, sampled_at)
        ends = (firsts + counts - 1)[[row.sample is not None for row in rows]]
        fields["sample_at"][: len(ends)] = ends
        fields["sample_at"][len(ends) :] = 0
        return StepSize(len(rows), num_tokens, len(ends), frozenset(slots[slots >= 0].tolist()))

    def _write_sources(
        self, fields: _Fields, rows: Sequence[Row], firsts: NDArray[np.int32], sampled_at: Mapping[int, int]
    ) -> None:
        fields["source"][:] = NO_SOURCE
        pending = [index for index, row in enumerate(rows) if row.tokens[0] == PENDING_TOKEN]
        if pending:
            assert all(len(rows[i].tokens) == 1 for i in pending), "a token in flight is its row's only one"
            at = firsts[pending]
            fields["source"][at] = [sampled_at[rows[index].sequence] for index in pending]
            fields["tokens"][at] = 0

    def _changes(self, count: int) -> tuple[Tensor, Tensor]:
        return self._field("places")[:count], self._field("values")[:count]

    def _uploaded(self, places: NDArray[np.int32], values: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        upload = Upload(self._device)
        return upload.send(places), upload.send(values)

    def _field(self, name: str) -> Tensor:
        start, count = self._fields[name]
        return self._flat[start : start + count]


class _Fields:
    """Views of one host buffer, by name."""

    def __init__(self, host: NDArray[np.int32], fields: Mapping[str, tuple[int, int]]) -> None:
        self._host = host
        self._fields = fields

    def __getitem__(self, name: str) -> NDArray[np.int32]:
        start, count = self._fields[name]
        return self._host[start : start + count]


def _layout(capacity: Capacity) -> tuple[dict[str, tuple[int, int]], int]:
    """(start, count) of each field, and the size of all."""
    counts = {"num_rows": 1, "num_tokens": 1}
    counts |= dict.fromkeys(("tokens", "source", "token_slot"), capacity.tokens)
    counts |= dict.fromkeys(("sample_at", "first_token", "row_tokens", "position"), capacity.rows)
    counts |= dict.fromkeys(("places", "values"), capacity.changes)
    fields: dict[str, tuple[int, int]] = {}
    at = 0
    for name, count in counts.items():
        fields[name] = (at, count)
        at += -(-count // ALIGNED) * ALIGNED
    return fields, at
