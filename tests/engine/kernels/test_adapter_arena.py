from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from engine.kernels.adapter_arena import AdapterArena, ArenaFull, ArenaLayout, pack_for_arena
from engine.kernels.lora import SITES, KernelAdapter
from tests.engine.kernels.random_factors import LAYERS, LAYOUT, SHAPES, adapter, stale_arena


def factors_in(arena: AdapterArena, slot: int, layer: int, site: str) -> tuple[Tensor, Tensor, float] | None:
    """A, transposed B and scale as the tables tell where they are."""
    entry = layer, SITES.index(site), slot
    rank = int(arena.rank[entry])
    if rank == 0:
        return None
    inputs, outputs = SHAPES[site]
    a_at, b_at = int(arena.a_at[entry]), int(arena.b_at[entry])
    assert a_at % 8 == b_at % 8 == 0  # 16 bytes
    a = arena.data[a_at : a_at + rank * inputs].view(rank, inputs)
    return a, arena.data[b_at : b_at + rank * outputs].view(rank, outputs), float(arena.scale[entry])


def assert_holds(arena: AdapterArena, slot: int, held: KernelAdapter | None) -> None:
    for layer in range(LAYERS):
        for site in SITES:
            found = factors_in(arena, slot, layer, site)
            wanted = held.modules.get((layer, site)) if held else None
            assert (found is None) == (wanted is None)
            if found and wanted:
                assert torch.equal(found[0].cpu(), wanted.a.bfloat16())
                assert torch.equal(found[1].cpu(), wanted.b.bfloat16())
                assert found[2] == wanted.scale


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rank", [1, 3, 64, 256])
def test_the_tables_tell_where_every_factor_is(rank: int, dtype: torch.dtype) -> None:
    arena = stale_arena(3)
    whole, part = adapter(1, rank, dtype=dtype), adapter(2, rank, ["k_proj", "down_proj"], [1], dtype)
    arena.install(2, whole)
    arena.install(0, part)
    assert_holds(arena, 2, whole)
    assert_holds(arena, 0, part)
    assert_holds(arena, 1, None)


def test_an_adapter_fits_whenever_its_bytes_are_free() -> None:
    """Whatever was installed and cleared before, and without a change to any other slot."""
    dice = random.Random(1)
    arena = stale_arena(6, num_pages=9)
    total = arena.free_bytes
    held: dict[int, KernelAdapter] = {}
    known = [adapter(seed, rank) for seed, rank in enumerate((2, 64, 120, 256))]
    refused = 0
    scattered = False
    for step in range(80):
        slot = dice.randrange(6)
        if slot in held and dice.random() < 0.4:
            arena.clear(slot)
            del held[slot]
        else:
            new = dice.choice(known)
            others = sum(LAYOUT.device_bytes(each) for at, each in held.items() if at != slot)
            if others + LAYOUT.device_bytes(new) <= total:
                arena.install(slot, new)
                held[slot] = new
                pages = sorted(set((arena.a_at[:, :, slot] // LAYOUT.page_elements).flatten().tolist()))
                scattered |= any(after > before + 2 for before, after in pairwise(pages))
            else:
                refused += 1
                with pytest.raises(ArenaFull, match="bytes on the device"):
                    arena.install(slot, new)
        assert arena.free_bytes == total - sum(map(LAYOUT.device_bytes, held.values()))
        if step % 10 == 9:
            for each in range(6):
                assert_holds(arena, each, held.get(each))
    assert refused > 5
    assert scattered, "never were the free pages apart from one another"


def test_an_adapter_takes_pages_for_its_exact_ranks() -> None:
    """Less than a page is lost in each page, besides the end of the last one."""
    for rank in (1, 8, 64, 256):
        exact = sum(f.a.numel() + f.b.numel() for f in adapter(1, rank).modules.values()) * 2
        taken = LAYOUT.device_bytes(adapter(1, rank))
        assert exact <= taken <= 2 * exact + LAYOUT.page_bytes
    llama = ArenaLayout(1, dict.fromkeys(SITES, (14336, 4096)))
    assert llama.page_bytes == 256 * 14336 * 2


def test_factors_of_a_group_are_read_from_one_place() -> None:
    run = pack_for_arena(adapter(1, 8), LAYOUT)
    qkv = run.a_at[1, :3].tolist()
    assert qkv == [qkv[0], qkv[0] + 8 * 40, qkv[0] + 16 * 40]
    assert len(run.pages) == 1
    assert not run.pages[0].is_pinned()
    assert run.num_bytes == LAYOUT.page_bytes


def test_host_memory_that_one_adapter_lets_go_serves_any_other() -> None:
    """Pinned memory goes back to torch's cache, which gives it out again for the same size alone."""
    runs = [pack_for_arena(adapter(1, rank), LAYOUT) for rank in (1, 9, 64, 256)]
    assert len(runs[0].pages) < len(runs[-1].pages)
    assert {page.untyped_storage().nbytes() for run in runs for page in run.pages} == {LAYOUT.page_bytes}
    assert [run.num_bytes for run in runs] == [len(run.pages) * LAYOUT.page_bytes for run in runs]
    assert pack_for_arena(adapter(1, 4, []), LAYOUT).num_bytes == 0


def test_a_slot_can_be_filled_again() -> None:
    arena = stale_arena(2, num_pages=4)
    large, small = adapter(1, 128), adapter(2, 4, ["q_proj"], [0])
    arena.install(0, large)
    epoch = arena.epoch
    arena.install(0, small)
    assert arena.epoch > epoch
    assert_holds(arena, 0, small)
    assert arena.free_bytes == 3 * LAYOUT.page_bytes
    arena.install(1, large)
    assert_holds(arena, 0, small)
    with pytest.raises(ArenaFull):
        arena.install(0, adapter(3, 256))
    assert_holds(arena, 0, small)
    epoch = arena.epoch
    arena.clear(0)
    assert arena.epoch > epoch
    assert_holds(arena, 0, None)
    assert_holds(arena, 1, large)


def test_what_no_adapter_touches_is_known() -> None:
    arena = stale_arena(3)
    arena.install(0, adapter(1, 4, ["q_proj"], [0]))
    arena.install(1, adapter(2, 4, ["v_proj", "o_proj"], [0]))
    assert arena.touches(0, "qkv")
    assert arena.touches(0, "o")
    assert not arena.touches(0, "down")
    assert not arena.touches(1, "qkv")
    arena.clear(1)
    assert arena.touches(0, "qkv")
    assert not arena.touches(0, "o")
    arena.install(0, adapter(3, 4, [], []))
    assert not arena.touches(0, "qkv")


def test_a_budget_without_a_page_is_refused() -> None:
    with pytest.raises(ArenaFull, match="rank 256"):
        AdapterArena(LAYOUT, 2, LAYOUT.page_bytes - 1, "cpu")
