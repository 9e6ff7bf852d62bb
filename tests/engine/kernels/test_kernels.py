"""The C++ kernels equal their torch twins, and a row's bits don't depend on its company."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.kernels.cpu import CpuKernels
from engine.kernels.lora import GROUPS, KernelAdapter, SlotTable, plan_lora, prepare
from engine.kernels.reference import ReferenceKernels
from engine.kernels.shapes import AttentionShape, HeadNorms, cut_chunks, new_cache

DTYPES = [torch.float32, torch.bfloat16]
SITES = {
    "q_proj": (40, 48),
    "k_proj": (40, 24),
    "v_proj": (40, 20),
    "o_proj": (48, 40),
    "gate_proj": (40, 72),
    "up_proj": (40, 72),
    "down_proj": (72, 40),
}


@dataclass(frozen=True)
class Host:
    modules: dict[tuple[int, str], tuple[Tensor, Tensor, float]]


@pytest.fixture(scope="module")
def cpu(kernels_library: Path) -> CpuKernels:
    return CpuKernels(kernels_library, num_threads=1)


def tolerance(dtype: torch.dtype) -> float:
    return 2e-5 if dtype is torch.float32 else 2e-2


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (3, 7), (2, 576), (200, 577)])
def test_row_wise_kernels_equal_their_twins(
    cpu: CpuKernels, dtype: torch.dtype, rows: int, width: int
) -> None:
    weight, delta, gate_up = (
        draw(1, width, dtype=dtype),
        draw(2, rows, width, dtype=dtype),
        draw(3, rows, 2 * width),
    )
    ours, twins = draw(4, rows, width), draw(4, rows, width)
    a = cpu.add_norm(ours, delta, weight, 1e-5)
    b = ReferenceKernels().add_norm(twins, delta, weight, 1e-5)
    assert torch.equal(ours, twins)
    torch.testing.assert_close(a, b, rtol=tolerance(dtype), atol=tolerance(dtype))
    spread = (gate_up * 30).to(dtype)  # far enough out to reach both ends of the exponential
    wanted = ReferenceKernels().silu_mul(spread)
    torch.testing.assert_close(cpu.silu_mul(spread), wanted, rtol=tolerance(dtype), atol=tolerance(dtype))
    assert torch.equal(cpu.silu_mul(spread[:1].contiguous()), cpu.silu_mul(spread)[:1])


SHAPES = [
    AttentionShape(9, 3, 64, 16, 0.125, 1e-6),
    AttentionShape(4, 4, 24, 32, 0.2, 1e-6),
    AttentionShape(16, 1, 80, 16, 0.1, 1e-6),
    AttentionShape(4, 2, 100, 48, 0.1, 1e-6),
]
ROWS = [(1, 0), (1, 15), (37, 0), (5, 11), (1, 100), (40, 90), (2, 15)]  # (tokens, first position)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normed", [False, True])
def test_attention_equals_its_twin_for_any_mix(
    cpu: CpuKernels, dtype: torch.dtype, shape: AttentionShape, normed: bool
) -> None:
    num_blocks = 80
    tables = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
    rows, start = [], 0
    for count, position in ROWS:
        needed = -(-(count + position) // shape.block_size)
        rows.append((count, position, tables[start : start + needed]))
        start += needed
    chunks = cut_chunks(rows, shape)
    tokens = sum(count for count, _, _ in rows)
    qkv = draw(2, tokens, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim, dtype=dtype)
    norms = HeadNorms(*(draw(i, shape.head_dim, dtype=dtype) for i in (5, 6))) if normed else None
    cos_sin = draw(3, 256, shape.head_dim)
    results = []
    for kernels in (cpu, ReferenceKernels()):
        cache = new_cache(shape, num_blocks, dtype)
        cache.keys.copy_(draw(7, *cache.keys.shape))
        cache.values[..., : shape.head_dim].copy_(draw(8, *cache.values.shape)[..., : shape.head_dim])
        q = kernels.rotate_and_store(shape, chunks, qkv, norms, cos_sin, cache)
        results.append((q, cache.keys, cache.values, kernels.attend(shape, chunks, q, cache)))
    for ours, twins in zip(*results, strict=True):
        torch.testing.assert_close(ours, twins, rtol=tolerance(dtype) * 2, atol=tolerance(dtype) * 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_bits_depend_on_the_tokens_own_position_alone(
    cpu: CpuKernels, dtype: torch.dtype, shape: AttentionShape
) -> None:
    """One prompt of 90 at once, then cut anyhow, in other blocks, beside others."""
    length, width = 90, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    qkv, cos_sin = draw(1, length, width, dtype=dtype), draw(2, 128, shape.head_dim)
    blocks = -(-length // shape.block_size)

    def computed(cuts: list[int], table: list[int], beside: bool) -> Tensor:
        cache, out, at = new_cache(shape, 32, dtype), [], 0
        for cut in cuts:
            rows = [(cut, at, table)]
            part = qkv[at : at + cut]
            if beside:
                rows = [(2, 0, [31]), *rows, (1, 3, [30])]
                part = torch.cat((draw(3, 2, width, dtype=dtype), part, draw(4, 1, width, dtype=dtype)))
            chunks = cut_chunks(rows, shape)
            q = cpu.rotate_and_store(shape, chunks, part.contiguous(), None, cos_sin, cache)
            attended = cpu.attend(shape, chunks, q, cache)
            out.append(attended[2 : 2 + cut] if beside else attended)
            at += cut
        return torch.cat(out)

    whole = computed([length], list(range(blocks)), beside=False)
    assert torch.equal(whole, computed([1] * length, list(range(blocks)), beside=False))
    assert torch.equal(whole, computed([17, 3, 50, 1, 19], list(range(20, 20 + blocks)), beside=True))


def test_stale_numbers_of_another_sequence_do_not_leak(cpu: CpuKernels) -> None:
    """A freed block may hold NaN; positions not yet written are never read into a result."""
    shape = SHAPES[0]
    cache = new_cache(shape, 2, torch.float32)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    chunks = cut_chunks([(3, 0, [1])], shape)
    qkv = draw(1, 3, 15 * 64)
    q = cpu.rotate_and_store(shape, chunks, qkv, None, draw(2, 16, 64), cache)
    assert torch.isfinite(cpu.attend(shape, chunks, q, cache)).all()


def adapter(seed: int, rank: int, dtype: torch.dtype, sites: list[str]) -> KernelAdapter:
    modules = {}
    for number, site in enumerate(sites):
        inputs, outputs = SITES[site]
        a, b = (
            draw(seed + number, rank, inputs, dtype=dtype),
            draw(seed + 50 + number, outputs, rank, dtype=dtype),
        )
        modules[0, site] = (a, b, 0.5)
    return prepare(Host(modules))


def slots() -> SlotTable:
    """Ranks 1 to 256, all factor dtypes, all sites and some, and one adapter of another layer only."""
    table = SlotTable(8, 2, SITES)
    table.install(0, adapter(1, 1, torch.bfloat16, list(SITES)))
    table.install(1, adapter(2, 3, torch.float32, ["q_proj", "v_proj", "down_proj"]))
    table.install(2, adapter(3, 8, torch.float16, ["k_proj", "up_proj"]))
    table.install(4, adapter(4, 17, torch.bfloat16, ["o_proj", "gate_proj"]))
    table.install(6, adapter(5, 256, torch.bfloat16, list(SITES)))
    return table


MIXES = [
    [(0, 1)],
    [(-1, 2), (6, 1), (-1, 1)],
    [(6, 9), (-1, 1), (0, 1), (1, 3), (6, 1), (2, 13), (4, 7), (-1, 2), (0, 6)],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("group", GROUPS)
def test_lora_equals_its_twin(
    cpu: CpuKernels, dtype: torch.dtype, mix: list[tuple[int, int]], group: str
) -> None:
    table = slots()
    step = plan_lora(table, mix)
    assert step is not None
    tokens = sum(count for _, count in mix)
    x = draw(1, tokens, SITES[GROUPS[group][0]][0], dtype=dtype)
    ours = draw(2, tokens, sum(SITES[site][1] for site in GROUPS[group]), dtype=dtype)
    before, twins = ours.clone(), ours.clone()
    cpu.lora(step, 0, group, x, ours)
    ReferenceKernels().lora(step, 0, group, x, twins)
    torch.testing.assert_close(ours, twins, rtol=tolerance(dtype), atol=tolerance(dtype) * 20)
    rows = [slot for slot, count in mix for _ in range(count)]
    base = [row for row, slot in enumerate(rows) if slot < 0]
    assert torch.equal(ours[base], before[base])
    cpu.lora(step, 1, group, x, ours)  # nothing is installed on layer 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_lora_bits_do_not_depend_on_grouping_or_slot(cpu: CpuKernels, dtype: torch.dtype) -> None:
    table = slots()
    mix = MIXES[2]
    tokens = sum(count for _, count in mix)
    x, y = draw(1, tokens, 40, dtype=dtype), draw(2, tokens, 92, dtype=dtype)
    crowd = y.clone()
    step = plan_lora(table, mix)
    assert step is not None
    cpu.lora(step, 0, "qkv", x, crowd)
    moved = table.adapters[6]
    assert moved is not None
    table.install(3, moved)
    rows = [slot for slot, count in mix for _ in range(count)]
    for row, slot in enumerate(rows):
        alone = y[row : row + 1].clone()
        lone_step = plan_lora(table, [(3 if slot == 6 else slot, 1)])
        if lone_step is not None:
            cpu.lora(lone_step, 0, "qkv", x[row : row + 1].contiguous(), alone)
        assert torch.equal(alone[0], crowd[row])


def test_a_cleared_slot_has_no_factors() -> None:
    table = slots()
    table.clear(6)
    assert table.adapters[6] is None
    with pytest.raises(AssertionError, match="slot 6 is empty"):
        plan_lora(table, [(6, 1)])
    assert plan_lora(table, [(-1, 4)]) is None


MIXED = [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16, torch.bfloat16)]


@pytest.mark.parametrize(("of_a", "of_b"), MIXED)
def test_factors_of_two_dtypes_are_read_each_as_it_is(
    cpu: CpuKernels, of_a: torch.dtype, of_b: torch.dtype
) -> None:
    a, b = draw(1, 5, 48, dtype=of_a), draw(2, 40, 5, dtype=of_b)
    table = SlotTable(1, 1, SITES)
    table.install(0, prepare(Host({(0, "o_proj"): (a, b, 0.5)})))
    step = plan_lora(table, [(0, 3)])
    assert step is not None
    x, y = draw(3, 3, 48), draw(4, 3, 40)
    wanted = y + x @ a.float().T @ b.float().T * 0.5
    cpu.lora(step, 0, "o", x, y)
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 5])
def test_a_prepared_adapter_keeps_nothing_but_what_it_counts(rank: int) -> None:
    """Its factors come as views of all that a file holds of one layer."""
    part = draw(1, rank * (40 + 48), dtype=torch.bfloat16)
    a, b = part[: rank * 40].view(rank, 40), part[rank * 40 :].view(48, rank)
    prepared = prepare(Host({(0, "q_proj"): (a, b, 1.0)}))
    [factors] = prepared.modules.values()
    held = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in (factors.a, factors.b)
    }
    assert sum(held.values()) == prepared.num_bytes
    assert torch.equal(factors.a, a)
    assert torch.equal(factors.b, b.T)
    assert factors.a.is_contiguous()
    assert factors.b.is_contiguous()
