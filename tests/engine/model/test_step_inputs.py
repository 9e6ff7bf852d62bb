"""What a step tells the device: block tables by change, tokens in flight, padding that says so."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, Row, SamplePlan
from engine.core.protocol import Sampling
from engine.model.block_lanes import BlockLanes
from engine.model.step_inputs import Capacity, StepInputs

SAMPLE = SamplePlan(Sampling(max_tokens=9, seed=0), 0, (1,), ())
CPU = torch.device("cpu")


def row(
    sequence: int,
    tokens: list[int],
    start: int,
    table: list[int],
    slot: int = BASE_SLOT,
    samples: bool = True,
) -> Row:
    return Row(sequence, tokens, start, table, slot, SAMPLE if samples else None)


def test_lanes_hold_every_table_whoever_comes_leaves_or_moves() -> None:
    """Against the obvious twin: all tables written anew at each step."""
    dice = random.Random(3)
    lanes = BlockLanes(6, 12)
    device = np.full(6 * 12, -7, np.int32)
    tables: dict[int, list[int]] = {}
    sent = 0
    for step in range(400):
        for sequence in list(tables):
            if dice.random() < 0.1:
                del tables[sequence]
            elif dice.random() < 0.1:  # preempted, and back with other blocks
                tables[sequence] = [dice.randrange(99) for _ in range(dice.randint(1, 12))]
            elif dice.random() < 0.3 and len(tables[sequence]) < 12:
                tables[sequence].append(dice.randrange(99))
        while len(tables) < dice.randint(1, 6):
            tables[step * 10 + len(tables)] = [dice.randrange(99) for _ in range(dice.randint(1, 12))]
        order = dice.sample(list(tables), dice.randint(1, len(tables)))  # some sit a step out
        rows = [row(sequence, [1], 0, tables[sequence]) for sequence in order]
        held, places, values = lanes.arrange(rows)
        device[places] = values
        sent += len(places)
        assert sorted(held) == list(range(len(rows)))
        for lane, each in zip(held, rows, strict=True):
            assert device.reshape(6, 12)[lane, : len(each.block_table)].tolist() == list(each.block_table)
    assert sent > 0


def test_a_sequence_that_stays_sends_its_new_blocks_alone() -> None:
    lanes = BlockLanes(4, 8)
    tables = {number: [10 * number + i for i in range(5)] for number in range(4)}
    lanes.arrange([row(number, [1], 0, table) for number, table in tables.items()])
    tables[2].append(77)
    rows = [row(number, [1], 0, tables[number]) for number in (3, 2, 0, 1)]
    held, places, values = lanes.arrange(rows)
    assert values.tolist() == [77]
    assert places.tolist() == [held[1] * 8 + 5]
    assert len(lanes.arrange(rows)[1]) == 0


def test_more_rows_than_lanes_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError, match="more rows"):
        BlockLanes(1, 8).arrange([row(0, [1], 0, [1]), row(1, [1], 0, [2])])


def test_a_step_arrives_as_it_was_planned() -> None:
    inputs = StepInputs(Capacity(rows=4, tokens=16, blocks=3), CPU)
    big = [
        row(7, [5, 6, 7], 30, [1, 2, 3], slot=2),
        row(8, [9], 0, [4], samples=False),
        row(9, [3], 2, [6], 0),
    ]
    size = inputs.send(big, {})
    assert (size.num_rows, size.num_tokens, size.num_sampled, set(size.slots)) == (3, 5, 2, {0, 2})
    assert inputs.tokens(8).tolist() == [5, 6, 7, 9, 3, 0, 0, 0]
    assert inputs.token_slot.tolist() == [2, 2, 2, BASE_SLOT, 0] + [BASE_SLOT] * 11
    assert inputs.sample_at.tolist() == [2, 4, 0, 0]
    rows = inputs.rows()
    live = int(rows.num_rows)
    found = {
        (
            int(first),
            int(count),
            int(position),
            tuple(table.tolist()[: (int(position) + int(count) + 15) // 16]),
        )
        for first, count, position, table in zip(
            rows.first_token[:live],
            rows.num_tokens[:live],
            rows.position[:live],
            rows.block_tables,
            strict=False,
        )
    }
    assert found == {(0, 3, 30, (1, 2, 3)), (3, 1, 0, (4,)), (4, 1, 2, (6,))}
    size = inputs.send([row(9, [8], 3, [6])], {})  # smaller: nothing of the last step is left
    assert inputs.tokens(4).tolist() == [8, 0, 0, 0]
    assert inputs.token_slot.tolist() == [BASE_SLOT] * 16
    assert not size.slots


def test_a_token_in_flight_is_what_the_last_step_sampled_for_its_sequence() -> None:
    inputs = StepInputs(Capacity(rows=4, tokens=8, blocks=2), CPU)
    inputs.last_tokens.copy_(torch.tensor([41, 42, 43, 44]))
    inputs.send(
        [row(5, [PENDING_TOKEN], 9, [1]), row(6, [11], 0, [2]), row(7, [PENDING_TOKEN], 3, [3])], {7: 1, 5: 2}
    )
    assert inputs.tokens(4).tolist() == [43, 11, 42, 0]
    inputs.send([row(6, [12], 1, [2])], {})
    assert inputs.tokens(2).tolist() == [12, 0]


def test_tables_too_long_for_the_one_copy_arrive_all_the_same() -> None:
    capacity = Capacity(rows=8, tokens=8, blocks=20)
    inputs = StepInputs(capacity, CPU)
    rows = [row(n, [1], 0, [100 * n + i for i in range(20)]) for n in range(8)]
    assert capacity.changes < 8 * 20
    inputs.send(rows, {})
    assert inputs.block_tables.tolist() == [list(each.block_table) for each in rows]
