"""Kernels at the sizes of Llama 3.1 8B (in the interpreter, of next to nothing) equal their twins, give the
same bits twenty times, alone and in a crowd, and replay as a real CUDA graph over other rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.kernels import kv_write, reference_gpu, sgmv
from engine.kernels.adapter_arena import AdapterArena, ArenaLayout
from engine.kernels.attention_plan import build_plan
from engine.kernels.lora import GROUPS
from engine.kernels.paged_attention import attend, new_planes
from engine.kernels.reference_gpu import Cells
from engine.kernels.rowwise_triton import new_codes, quantize_rows
from engine.kernels.sgmv_plan import BASE, SgmvPlanner
from engine.kernels.sgmv_reference import add_lora
from engine.kernels.shapes import AttentionShape, LayerCache
from engine.model.graphs import CudaGraphs, EagerGraphs, Graphs
from engine.model.linear import Fp8Linear, new_linear
from tests.engine.kernels.interpreter import DEVICE
from tests.engine.kernels.paged_rows import PagedSequence, lay_out, write_rows
from tests.engine.kernels.random_factors import adapter, drawn, stale_arena
from tests.engine.kernels.test_paged_attention import _blocks, attended, twin
from tests.engine.kernels.test_sgmv import rounding, served
from tests.gpu.random_model import llama_8b

One = PagedSequence
ON_GPU = DEVICE == "cuda"
FP8 = torch.float8_e4m3fn
SHAPE = (
    AttentionShape(32, 8, 128, 16, 128**-0.5, 1e-5) if ON_GPU else AttentionShape(4, 2, 16, 16, 0.25, 1e-5)
)
MIXED = (
    [One(1, 0, 1), One(1, 8191, 2), One(700, 0, 3), One(1, 8500, 4), One(129, 900, 5), One(1, 255, 6)]
    if ON_GPU
    else [One(1, 0, 1), One(3, 14, 2), One(1, 20, 3)]
)
SITES = (
    llama_8b().sites
    if ON_GPU
    else dict(
        zip(
            llama_8b().sites,
            ((32, 32), (32, 16), (32, 16), (32, 32), (32, 48), (32, 48), (48, 32)),
            strict=True,
        )
    )
)
LAYOUT = ArenaLayout(2, SITES, max_rank=256 if ON_GPU else 16)
RANKS = {0: 1, 2: 256, 3: 16, 5: 64, 7: 33} if ON_GPU else {0: 1, 2: 16, 3: 7}
NUM_SLOTS = 8 if ON_GPU else 5
RUNS = 20 if ON_GPU else 1
PROGRAMS = 528 if ON_GPU else 4
MOST_ROWS, CAPACITY = (8, 1024) if ON_GPU else (4, 8)
DECODE = 128 if ON_GPU else 6
SEVERAL = (DECODE, 700) if ON_GPU else (DECODE,)  # rows; the latter in the tiles of prefill
SCALES = (0.5, 1.7)


@pytest.fixture(scope="module")
def arena() -> AdapterArena:
    arena = stale_arena(NUM_SLOTS, 40, LAYOUT)
    for slot, rank in RANKS.items():
        arena.install(slot, adapter(slot, rank, shapes=SITES))
    return arena


def graphs() -> Graphs:
    return CudaGraphs(torch.device(DEVICE)) if ON_GPU else EagerGraphs()


def slots_of(rows: int, seed: int, kinds: Sequence[int]) -> Tensor:
    """As many rows of each of `kinds`, in no order."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return torch.tensor(kinds, dtype=torch.int32)[order % len(kinds)].to(DEVICE)


def x_and_y(group: str, rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    members = GROUPS[group]
    y = drawn(8, rows, sum(SITES[site][1] for site in members), dtype=dtype)
    return drawn(7, rows, SITES[members[0]][0]).to(DEVICE), y.to(DEVICE)


def number(count: int) -> Tensor:
    return torch.tensor([count], dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, FP8])
def test_attention_equals_its_twin_twenty_times_alike(kv_dtype: torch.dtype) -> None:
    scales = SCALES if kv_dtype is FP8 else (1.0, 1.0)
    pages = lay_out(SHAPE, MIXED, dtype=torch.bfloat16, kv_dtype=kv_dtype, scales=scales)
    first = attended(pages, programs=PROGRAMS)
    wanted = twin(pages).float()
    off = (first.float() - wanted).flatten(1).norm(dim=1) / wanted.flatten(1).norm(dim=1)
    assert off.max() < 0.01  # of each token: over 8,000 keys all numbers are small
    for _ in range(RUNS):
        assert torch.equal(attended(pages, programs=PROGRAMS), first)
    at = 0
    for each in MIXED:
        lone = lay_out(SHAPE, [each], dtype=torch.bfloat16, kv_dtype=kv_dtype, scales=scales, seed=4)
        assert torch.equal(attended(lone, programs=PROGRAMS // 4), first[at : at + each.count])
        at += each.count


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, FP8])
def test_writes_of_keys_and_values_equal_their_twin(kv_dtype: torch.dtype) -> None:
    scales = SCALES if kv_dtype is FP8 else (1.0, 1.0)
    pages = lay_out(SHAPE, MIXED, dtype=torch.bfloat16, kv_dtype=kv_dtype, scales=scales)
    width = (SHAPE.num_heads + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim
    qkv = drawn(1, pages.q.shape[0], width).to(DEVICE)
    positions = max(each.position + each.count for each in MIXED)
    cos_sin = drawn(2, positions, SHAPE.head_dim, dtype=torch.float32).to(DEVICE)
    ours, theirs = (
        LayerCache(pages.cache.keys.clone(), pages.cache.values.clone(), *scales) for _ in range(2)
    )
    q, wanted = torch.zeros_like(pages.q), torch.zeros_like(pages.q)
    kv_write.rotate_and_store(SHAPE, pages.plan, qkv, None, cos_sin, ours, q)
    reference_gpu.rotate_and_store(SHAPE, pages.rows, qkv, None, cos_sin, theirs, wanted)
    torch.testing.assert_close(q[: pages.num_tokens], wanted[: pages.num_tokens], rtol=2**-7, atol=1e-5)
    cells = pages.plan.token_cell[: pages.num_tokens].long()
    for one, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        mine, its = Cells(one)[cells].float(), Cells(other)[cells].float()
        torch.testing.assert_close(mine, its, rtol=2**-3 if kv_dtype is FP8 else 2**-7, atol=2**-9)
        assert (mine != its).sum() <= 0.002 * mine.numel()


def test_attention_replays_over_other_rows() -> None:
    """More and fewer, short and long, none at all: what the launches of one capture find in its tensors."""
    largest = lay_out(SHAPE, MIXED, max_rows=MOST_ROWS, capacity=CAPACITY, dtype=torch.bfloat16)
    planes = new_planes(SHAPE, MOST_ROWS, DEVICE)
    q, out = torch.zeros_like(largest.q), torch.full_like(largest.q, torch.nan)

    def work() -> Tensor:
        build_plan(largest.rows, largest.plan, SHAPE)
        attend(SHAPE, largest.rows, largest.plan, planes, q, largest.cache, out, programs=PROGRAMS)
        return out

    q.copy_(largest.q)
    recorded = graphs().record(work)
    for step in (MIXED, MIXED[:1], [], MIXED[1::-1], MIXED):
        fresh = lay_out(SHAPE, step, max_rows=MOST_ROWS, capacity=CAPACITY, dtype=torch.bfloat16)
        write_rows(SHAPE, largest.rows, step, _blocks(fresh, len(step)))
        used = fresh.cache.keys.shape[0]
        largest.cache.keys[:used], largest.cache.values[:used] = fresh.cache.keys, fresh.cache.values
        q.copy_(fresh.q)
        recorded.replay()
        assert torch.equal(out[: fresh.num_tokens], attended(fresh, programs=PROGRAMS))
        assert not out[fresh.num_tokens :].any()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("rows", SEVERAL)
def test_adapters_of_mixed_ranks_equal_their_twin_twenty_times_alike(
    arena: AdapterArena, rows: int, group: str
) -> None:
    slots = slots_of(rows, 1, [BASE, *RANKS, 4])  # slot 4 is empty
    planner, bridge = SgmvPlanner(rows, NUM_SLOTS, DEVICE), sgmv.new_bridge(LAYOUT, rows, DEVICE)
    plan, (x, y) = planner.build(slots, number(rows)), x_and_y(group, rows)
    first, wanted = served(arena, plan, bridge, group, x, y), y.clone()
    add_lora(x, slots, rows, arena, 1, group, wanted)
    assert ((first - wanted).abs() <= rounding(arena, slots, group, x, y)).all()
    assert torch.equal(first[slots == BASE], y[slots == BASE])
    for _ in range(RUNS):
        assert torch.equal(served(arena, plan, bridge, group, x, y), first)
    for slot in RANKS:
        row = int((slots == slot).nonzero()[0])
        lone = torch.full_like(slots, BASE)
        lone[row] = slot
        alone = served(arena, planner.build(lone, number(rows)), bridge, group, x, y)
        assert torch.equal(alone[row], first[row])


def test_a_graph_serves_more_and_fewer_adapters(arena: AdapterArena) -> None:
    slots, used = slots_of(DECODE, 1, [3]), number(DECODE)
    planner, bridge = SgmvPlanner(DECODE, NUM_SLOTS, DEVICE), sgmv.new_bridge(LAYOUT, DECODE, DEVICE)
    x, clean = x_and_y("qkv", DECODE, torch.bfloat16)
    y = clean.clone()

    def work() -> Tensor:
        plan = planner.build(slots, used)
        sgmv.shrink(x, plan, arena, 1, "qkv", bridge)
        sgmv.expand(bridge, plan, arena, 1, "qkv", y)
        return y

    recorded = graphs().record(work)
    for count, kinds in ((DECODE, [BASE, *RANKS]), (3, [2]), (0, [2]), (DECODE, [BASE]), (7, list(RANKS))):
        slots.copy_(slots_of(DECODE, count, kinds))
        used.fill_(count)
        y.copy_(clean)
        recorded.replay()
        plan = planner.build(slots, used)
        assert torch.equal(y, served(arena, plan, bridge, "qkv", x, clean))
        assert torch.equal(y[count:], clean[count:])


@pytest.mark.parametrize("rows", [1, 3, 8, 128, 300] if ON_GPU else [1, 3])
@pytest.mark.parametrize("biased", [False, True])
def test_products_in_fp8_equal_their_twin(rows: int, biased: bool) -> None:
    """`torch._scaled_mm`, with the codes that our kernel makes, against the same codes multiplied on the
    host."""
    inputs, outputs = SITES["k_proj"]
    weight = drawn(3, outputs, inputs, dtype=torch.float32).mul_(64).to(FP8)
    scale = drawn(4, outputs, 1, dtype=torch.float32).abs_().mul_(0.01)
    bias = drawn(5, outputs) if biased else None
    x = drawn(6, rows, inputs)

    def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
        codes = new_codes(x.shape[0], x.shape[1], x.device)
        quantize_rows(x, codes)
        return codes.codes, codes.scale

    on_device = None if bias is None else bias.to(DEVICE)
    ours = new_linear(weight.to(DEVICE), on_device, scale.to(DEVICE), quantize=quantize)(x.to(DEVICE))
    wanted = Fp8Linear(weight, scale, bias, torch.bfloat16)(x)
    torch.testing.assert_close(
        ours.cpu().float(), wanted.float(), rtol=2e-2, atol=float(wanted.abs().max()) * 1e-2
    )
