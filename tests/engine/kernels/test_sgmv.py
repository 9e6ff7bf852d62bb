"""Shrink and expand add each row's own adapter and nothing else, for any mix of adapters in any buffers."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from engine.kernels import sgmv
from engine.kernels.adapter_arena import AdapterArena
from engine.kernels.lora import GROUPS, SITES, SlotTable, plan_lora
from engine.kernels.reference import ReferenceKernels
from engine.kernels.sgmv import expand, new_bridge, shrink
from engine.kernels.sgmv_plan import BASE, SgmvPlan, SgmvPlanner, max_blocks
from engine.kernels.sgmv_reference import add_lora, sorted_blocks
from tests.engine.kernels.interpreter import DEVICE
from tests.engine.kernels.random_factors import LAYERS, LAYOUT, SHAPES, adapter, drawn, stale_arena

NUM_SLOTS = 8
MOST_ROWS = 320
ADAPTERS = {
    0: adapter(1, 1),
    1: adapter(2, 3, ["q_proj", "v_proj", "down_proj"], dtype=torch.float32),
    2: adapter(3, 16, ["k_proj", "up_proj"], [1], torch.float16),
    4: adapter(4, 65, ["o_proj", "gate_proj", "v_proj"]),
    6: adapter(5, 256),
    7: adapter(6, 40),
}
MIXES = {
    "one row": [(6, 1)],
    "base rows between": [(BASE, 2), (6, 1), (BASE, 1), (0, 1), (1, 1), (BASE, 3), (6, 1)],
    "single rows of all": [(slot, 1) for slot in ADAPTERS],
    "blocks full and begun": [(7, 17), (0, 16), (BASE, 5), (1, 15), (2, 1), (4, 33), (7, 2), (6, 2)],
    "prefill": [(7, 70), (BASE, 9), (4, 64), (2, 1), (1, 120), (6, 13), (7, 20)],
    "all base": [(BASE, 20)],
}


def slots_of(mix: list[tuple[int, int]], capacity: int | None = None) -> Tensor:
    """int32 [capacity]. Rows beyond the mix claim to be of a slot, as stale ones do."""
    rows = [slot for slot, count in mix for _ in range(count)]
    stale = [6] * (capacity - len(rows)) if capacity else []
    return torch.tensor(rows + stale, dtype=torch.int32, device=DEVICE)


def count(number: int) -> Tensor:
    return torch.tensor([number], dtype=torch.int32, device=DEVICE)


@pytest.fixture(scope="module")
def arena() -> AdapterArena:
    arena = stale_arena(NUM_SLOTS)
    for slot, each in ADAPTERS.items():
        arena.install(slot, each)
    return arena


@pytest.fixture(scope="module")
def bridge() -> Tensor:
    return new_bridge(LAYOUT, MOST_ROWS, DEVICE)


def inputs_of(group: str, rows: int) -> Tensor:
    return drawn(7, rows, SHAPES[GROUPS[group][0]][0]).to(DEVICE)


def base_product(group: str, rows: int) -> Tensor:
    return drawn(8, rows, sum(SHAPES[site][1] for site in GROUPS[group]), dtype=torch.float32).to(DEVICE)


def served(
    arena: AdapterArena, plan: SgmvPlan, bridge: Tensor, group: str, x: Tensor, y: Tensor, layer: int = 1
) -> Tensor:
    y = y.clone()
    bridge.fill_(torch.nan)
    shrink(x, plan, arena, layer, group, bridge)
    expand(bridge, plan, arena, layer, group, y)
    return y


def rounding(arena: AdapterArena, slots: Tensor, group: str, x: Tensor, y: Tensor) -> Tensor:
    """How far results may be off: each rank of A x by half of bfloat16's last bit (and a little of its
    float32 sum), through B, as if all signs agreed."""
    bound = y.abs() * 1e-6
    for slot in sorted(set(slots.tolist()) - {BASE}):
        rows, column = (slots == slot).nonzero().flatten(), 0
        for site in GROUPS[group]:
            inputs, outputs = arena.layout.sites[site]
            entry = 1, SITES.index(site), slot
            rank, a_at, b_at = (int(table[entry]) for table in (arena.rank, arena.a_at, arena.b_at))
            a = arena.data[a_at : a_at + rank * inputs].view(rank, inputs).float()
            b = arena.data[b_at : b_at + rank * outputs].view(rank, outputs).float()
            h = (x[rows].float() @ a.T).abs() * 2**-8 + x[rows].float().abs() @ a.abs().T * 2**-18
            bound[rows, column : column + outputs] += h @ b.abs() * arena.scale[entry]
            column += outputs
    return bound


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_the_products_equal_their_twin(
    arena: AdapterArena, bridge: Tensor, mix: list[tuple[int, int]], group: str
) -> None:
    slots = slots_of(mix)
    rows = len(slots)
    x, y = inputs_of(group, rows), base_product(group, rows)
    plan = SgmvPlanner(MOST_ROWS, NUM_SLOTS, DEVICE).build(slots, count(rows))
    ours, twin = served(arena, plan, bridge, group, x, y), y.clone()
    add_lora(x, slots, rows, arena, 1, group, twin)
    assert ((ours - twin).abs() <= rounding(arena, slots, group, x, y)).all()
    assert torch.equal(ours[slots == BASE], y[slots == BASE])


def test_results_are_the_same_each_time_and_rounded_once(arena: AdapterArena, bridge: Tensor) -> None:
    slots = slots_of(MIXES["base rows between"])
    x, y = inputs_of("gate_up", len(slots)), base_product("gate_up", len(slots)).bfloat16()
    plan = SgmvPlanner(MOST_ROWS, NUM_SLOTS, DEVICE).build(slots, count(len(slots)))
    wide = served(arena, plan, bridge, "gate_up", x, y.float())
    assert torch.equal(wide, served(arena, plan, bridge, "gate_up", x, y.float()))
    assert torch.equal(wide.bfloat16(), served(arena, plan, bridge, "gate_up", x, y))


@pytest.mark.parametrize("group", GROUPS)
def test_the_twin_equals_that_of_other_kernels(arena: AdapterArena, group: str) -> None:
    """Which knows nothing of arenas."""
    mix = MIXES["blocks full and begun"]
    table = SlotTable(NUM_SLOTS, LAYERS, SHAPES)
    for slot, each in ADAPTERS.items():
        table.install(slot, each)
    step, slots = plan_lora(table, mix), slots_of(mix)
    assert step is not None
    x = inputs_of(group, len(slots))
    ours, others = base_product(group, len(slots)), base_product(group, len(slots)).cpu()
    add_lora(x, slots, len(slots), arena, 1, group, ours)
    ReferenceKernels().lora(step, 1, group, x.cpu(), others)
    torch.testing.assert_close(ours.cpu(), others, rtol=1e-2, atol=1)  # float32 is rounded in an arena


@pytest.mark.parametrize("capacity", [256, 400])
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_blocks_equal_their_twin(mix: list[tuple[int, int]], capacity: int) -> None:
    """Rows in any order, fewer than the buffers hold, and more slots than are named."""
    slots = slots_of(mix, capacity)[:capacity]
    used = min(sum(number for _, number in mix), capacity)
    slots[:used] = slots[torch.randperm(used, generator=torch.Generator().manual_seed(1))]
    planner = SgmvPlanner(400, NUM_SLOTS, DEVICE)
    for num_tokens in (used, 0):
        plan = planner.build(slots, count(num_tokens))
        blocks, block_slot = sorted_blocks(slots, num_tokens, plan.block_rows)
        number = int(plan.num_blocks)
        assert plan.block_rows == (16 if capacity == 256 else 64)
        assert plan.block_slot[:number].tolist() == block_slot
        assert plan.sorted_rows.view(-1, plan.block_rows)[:number].tolist() == blocks


def test_any_assignment_fits_the_launch() -> None:
    dice = random.Random(1)
    fullest = 0.0
    for _ in range(2000):
        rows, slots = dice.randint(1, 90), dice.randint(1, 40)
        mix = torch.tensor([dice.randrange(-1, dice.randint(1, slots)) for _ in range(rows)])
        needed = len(sorted_blocks(mix, rows, 16)[1])
        assert needed <= max_blocks(rows, slots, 16)
        fullest = max(fullest, needed / max_blocks(rows, slots, 16))
    assert fullest > 0.9


@pytest.mark.parametrize(
    ("mix", "group"), [("base rows between", "qkv"), ("blocks full and begun", "down"), ("prefill", "qkv")]
)
def test_a_row_alone_has_the_bits_it_has_in_a_crowd(
    arena: AdapterArena, bridge: Tensor, mix: str, group: str
) -> None:
    """In the same size of blocks; in another place, slot and part of the arena, too."""
    slots = slots_of(MIXES[mix])
    rows = len(slots)
    planner = SgmvPlanner(MOST_ROWS, NUM_SLOTS, DEVICE)
    elsewhere = stale_arena(NUM_SLOTS)
    elsewhere.install(0, adapter(9, 200))
    x, y = inputs_of(group, rows), base_product(group, rows)
    crowd = served(arena, planner.build(slots, count(rows)), bridge, group, x, y)
    for slot, to in ((6, 2), (1, 7)):
        elsewhere.install(to, ADAPTERS[slot])
        row = int((slots == slot).nonzero()[-1])
        place = rows - 1 - row
        lone = torch.full_like(slots, BASE)
        lone[place] = to
        x_moved, y_moved = x.clone(), y.clone()
        x_moved[place], y_moved[place] = x[row], y[row]
        alone = served(elsewhere, planner.build(lone, count(rows)), bridge, group, x_moved, y_moved)
        assert torch.equal(alone[place], crowd[row])
        assert not torch.equal(alone[place], y[row])


def test_captured_launches_serve_more_and_fewer_adapters(arena: AdapterArena, bridge: Tensor) -> None:
    """A graph repeats the launches of its capture over the buffers of its capture: `captured` stands for
    them, and only what the buffers hold changes."""
    capacity = 80
    slots, used = slots_of([], capacity), count(1)
    planner = SgmvPlanner(MOST_ROWS, NUM_SLOTS, DEVICE)
    captured = planner.build(slots, used)
    x, y = inputs_of("o", capacity), base_product("o", capacity)
    for mix in ("one row", "blocks full and begun", "all base", "single rows of all", "base rows between"):
        rows = slots_of(MIXES[mix])[:capacity]
        slots[: len(rows)] = rows
        used.fill_(len(rows))
        planner.build(slots, used)
        ours, twin = served(arena, captured, bridge, "o", x, y), y.clone()
        add_lora(x, slots, len(rows), arena, 1, "o", twin)
        assert ((ours - twin).abs() <= rounding(arena, slots, "o", x, y)).all()
        assert torch.equal(ours[len(rows) :], y[len(rows) :])


def test_a_slot_used_again_shows_nothing_of_its_past(bridge: Tensor) -> None:
    arena, fresh = stale_arena(2, num_pages=6), stale_arena(2)
    new = adapter(12, 5, ["k_proj", "o_proj"])
    arena.install(0, adapter(11, 256))
    arena.clear(0)
    plan = SgmvPlanner(40, 2, DEVICE).build(slots_of([(0, 3), (BASE, 1), (0, 30)]), count(34))
    x, y = inputs_of("qkv", 34), base_product("qkv", 34)
    assert torch.equal(served(arena, plan, bridge, "qkv", x, y), y)
    arena.install(0, new)
    fresh.install(0, new)
    for group in ("qkv", "o", "down"):
        x, y = inputs_of(group, 34), base_product(group, 34)
        wanted = served(fresh, plan, bridge, group, x, y)
        assert torch.equal(served(arena, plan, bridge, group, x, y), wanted)
        assert torch.equal(wanted, y) == (group == "down")


def test_sites_and_layers_without_factors_keep_their_bits(arena: AdapterArena, bridge: Tensor) -> None:
    plan = SgmvPlanner(40, NUM_SLOTS, DEVICE).build(slots_of([(1, 20), (2, 20)]), count(40))
    x, y = inputs_of("qkv", 40), base_product("qkv", 40)
    ours = served(arena, plan, bridge, "qkv", x, y)
    changed = ours != y
    q, k = SHAPES["q_proj"][1], SHAPES["q_proj"][1] + SHAPES["k_proj"][1]
    for rows, expected in ((slice(0, 20), (True, False, True)), (slice(20, 40), (False, True, False))):
        sites = changed[rows, :q], changed[rows, q:k], changed[rows, k:]
        assert tuple(bool(site.any()) for site in sites) == expected
    assert torch.equal(served(arena, plan, bridge, "qkv", x, y, layer=0)[20:], y[20:])


def test_a_row_that_is_not_finite_spoils_no_other(arena: AdapterArena, bridge: Tensor) -> None:
    plan = SgmvPlanner(40, NUM_SLOTS, DEVICE).build(slots_of([(6, 20), (BASE, 1)]), count(21))
    x, y = inputs_of("o", 21), base_product("o", 21)
    before = served(arena, plan, bridge, "o", x, y)
    x[3], x[20] = torch.nan, torch.inf
    after = served(arena, plan, bridge, "o", x, y)
    assert after[3].isnan().all()
    assert torch.equal(after[4:], before[4:])
    assert torch.equal(after[:3], before[:3])


@pytest.mark.parametrize("group", ["gate_up", "down"])
def test_how_many_programs_run_abreast_changes_no_bit(
    arena: AdapterArena, bridge: Tensor, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    slots = slots_of(MIXES["base rows between"])
    plan = SgmvPlanner(MOST_ROWS, NUM_SLOTS, DEVICE).build(slots, count(len(slots)))
    x, y = inputs_of(group, len(slots)), base_product(group, len(slots))
    few = served(arena, plan, bridge, group, x, y)
    other = {"INTERPRETED_PROGRAMS": 400, "MOST_SHRINK_PROGRAMS": 8, "MOST_EXPAND_PROGRAMS": 8}
    for bound, programs in other.items():
        monkeypatch.setattr(sgmv, bound, programs)
    assert torch.equal(served(arena, plan, bridge, group, x, y), few)
