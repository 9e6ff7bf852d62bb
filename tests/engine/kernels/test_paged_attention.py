"""Paged attention for GPUs equals its twin for any mix of rows, reads nothing that isn't a row's own, and
gives a row the same bits in any company."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.kernels import attention_plan, paged_attention, reference_gpu
from engine.kernels.attention_plan import build_plan, part_length_of
from engine.kernels.paged_attention import attend, new_planes
from engine.kernels.shapes import AttentionShape, LayerCache
from tests.engine.kernels.hopper import HopperCompiler
from tests.engine.kernels.interpreter import DEVICE
from tests.engine.kernels.paged_rows import PagedSequence, Pages, lay_out, write_rows

One = PagedSequence
SHAPES = {
    "no groups": AttentionShape(2, 2, 64, 16, 0.125, 1e-5),
    "groups of 3, odd dim": AttentionShape(3, 1, 80, 16, 0.1, 1e-5),
    "groups of 4": AttentionShape(4, 1, 128, 32, 0.09, 1e-5),
    "groups of 8": AttentionShape(8, 1, 64, 32, 0.125, 1e-5),
}
BORDERS = [One(1, length - 1, length) for length in (1, 15, 16, 17, 64, 65, 255, 256, 257, 513)]
MIXED = [
    One(1, 0, 1),
    One(2, 0, 2),
    One(33, 31, 3),
    One(1, 299, 4),
    One(130, 7, 5),
    One(1, 16, 6),
]
SMALL = AttentionShape(2, 1, 16, 16, 0.25, 1e-5)
PLANES = dict.fromkeys(["top_plane", "total_plane", "sums_plane"], "*fp32")
LLAMA_8B = AttentionShape(32, 8, 128, 16, 128**-0.5, 1e-5)


def attended(pages: Pages, *, programs: int = 5, prefill: bool = True) -> Tensor:
    """With planes and output full of NaN before."""
    planes = new_planes(pages.shape, pages.rows.num_tokens.shape[0], DEVICE)
    for plane in (planes.top, planes.total, planes.sums):
        plane.fill_(torch.nan)
    out = torch.full_like(pages.q, torch.nan)
    attend(
        pages.shape,
        pages.rows,
        pages.plan,
        planes,
        pages.q,
        pages.cache,
        out,
        programs=programs,
        prefill=prefill,
    )
    assert not out[pages.num_tokens :].any(), "padding is zero"
    return out[: pages.num_tokens]


def twin(pages: Pages) -> Tensor:
    out = torch.full_like(pages.q, torch.nan)
    reference_gpu.attend(pages.shape, pages.rows, pages.q, pages.cache, out)
    return out[: pages.num_tokens]


@pytest.mark.parametrize(
    ("shape", "sequences"),
    [(name, rows) for name in list(SHAPES)[:2] for rows in (BORDERS, MIXED)]
    + [("groups of 4", MIXED), ("groups of 8", BORDERS)],
)
def test_any_mix_of_rows_equals_its_twin(shape: str, sequences: Sequence[PagedSequence]) -> None:
    pages = lay_out(SHAPES[shape], sequences)
    torch.testing.assert_close(attended(pages), twin(pages), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_narrow_dtypes_equal_their_twin(kv_dtype: torch.dtype) -> None:
    scales = (0.5, 1.7) if kv_dtype is torch.float8_e4m3fn else (1.0, 1.0)
    pages = lay_out(SHAPES["groups of 4"], MIXED, dtype=torch.bfloat16, kv_dtype=kv_dtype, scales=scales)
    torch.testing.assert_close(attended(pages), twin(pages), rtol=2e-2, atol=2e-2)


def test_parts_grow_where_a_sequence_would_have_too_many() -> None:
    assert [part_length_of(length) for length in (1, 8192, 8193, 16384, 16385)] == [256, 256, 512, 512, 1024]
    pages = lay_out(AttentionShape(2, 1, 16, 32, 0.25, 1e-5), [One(1, 8192)])
    assert pages.plan.counts[0] == 17
    torch.testing.assert_close(attended(pages), twin(pages), rtol=1e-5, atol=1e-5)


def test_the_plan_lists_each_piece_of_work_once() -> None:
    sequences = [*MIXED, *BORDERS]
    pages = lay_out(SMALL, sequences)
    parts, tiles, tokens = pages.plan.counts.tolist()
    wanted = [
        [row, part]
        for row, each in enumerate(sequences)
        if each.count == 1
        for part in range(-(-(each.position + 1) // part_length_of(each.position + 1)))
    ]
    assert pages.plan.parts[:parts].tolist() == wanted
    size = pages.plan.tile_tokens
    wanted = [
        [row, first]
        for row, each in enumerate(sequences)
        if each.count > 1
        for first in range(0, each.count, size)
    ]
    assert sorted(pages.plan.tiles[:tiles].tolist()) == wanted
    positions = [p for each in sequences for p in range(each.position, each.position + each.count)]
    assert pages.plan.token_position[:tokens].tolist() == positions
    assert (pages.plan.token_cell[:tokens] >= 0).all()
    assert (pages.plan.token_cell[tokens:] == -1).all()


def test_no_rows_at_all() -> None:
    pages = lay_out(SMALL, [], max_rows=4, capacity=8)
    assert pages.plan.counts.tolist() == [0, 0, 0]
    assert attended(pages).shape[0] == 0


@pytest.mark.parametrize(
    "row", [One(1, 600, 9), One(1, 40, 9), One(70, 30, 9)], ids=["parts", "one part", "chunk"]
)
def test_a_row_has_the_same_bits_in_any_company(row: PagedSequence) -> None:
    alone = attended(lay_out(SMALL, [row], dtype=torch.bfloat16), programs=64)
    others = [One(1, 20, 1), One(40, 5, 2), One(1, 300, 3)]
    crowd = lay_out(
        SMALL, [*others, row, One(1, 1, 4)], max_rows=9, capacity=150, seed=3, dtype=torch.bfloat16
    )
    assert torch.equal(attended(crowd, programs=3)[42 : 42 + row.count], alone)


def test_a_prompt_has_the_same_bits_in_one_chunk_or_several() -> None:
    whole, *chunks = (
        attended(lay_out(SMALL, [One(count, at, 5)], dtype=torch.bfloat16))
        for count, at in ((90, 0), (2, 0), (37, 2), (51, 39))
    )
    assert torch.equal(torch.cat(chunks), whole)


def test_a_replay_finds_nothing_of_the_step_before() -> None:
    """The same tensors, written again for more rows, fewer, other classes: what a captured graph does."""
    steps = [MIXED[1:5], BORDERS[:3], [], [BORDERS[8], *MIXED[1::-1]]]
    largest = lay_out(SMALL, MIXED, max_rows=8, capacity=200)
    planes = new_planes(SMALL, 8, DEVICE)
    out = torch.full_like(largest.q, torch.nan)
    for step in steps:
        fresh = lay_out(SMALL, step, max_rows=8, capacity=200)
        write_rows(SMALL, largest.rows, step, _blocks(fresh, len(step)))
        build_plan(largest.rows, largest.plan, SMALL)
        attend(SMALL, largest.rows, largest.plan, planes, fresh.q, fresh.cache, out, programs=7)
        assert torch.equal(out[: fresh.num_tokens], attended(fresh))
        assert not out[fresh.num_tokens :].any()


def _blocks(pages: Pages, num_rows: int) -> Tensor:
    """Of all live rows, one after the other."""
    tables = [table[table < pages.cache.keys.shape[0]] for table in pages.rows.block_tables[:num_rows]]
    return torch.cat([*tables, torch.zeros(0, dtype=torch.int32, device=DEVICE)])


def test_decode_rows_need_no_prefill_launch() -> None:
    pages = lay_out(SMALL, BORDERS[:4])
    assert torch.equal(attended(pages, prefill=False), attended(pages))


def test_a_poisoned_sequence_poisons_itself_alone() -> None:
    sequences = [One(1, 40, 1), One(1, 300, 2), One(30, 20, 3), One(30, 40, 4)]
    pages = lay_out(SMALL, sequences)
    clean = attended(pages)
    for row in (1, 3):
        pages.cache.values[pages.rows.block_tables[row, 1]] = torch.nan
        pages.cache.keys[pages.rows.block_tables[row, 0], 0, 0, 0] = torch.nan
    hurt = attended(pages)
    mine = torch.zeros(62, dtype=torch.bool)
    mine[1], mine[32:] = True, True
    assert torch.equal(hurt[~mine], clean[~mine])
    assert not hurt[mine].isfinite().all(-1).any()


def test_blocks_lie_beyond_two_to_the_31_elements() -> None:
    """The cache is reserved and not touched but for its last blocks."""
    shape = AttentionShape(1, 1, 128, 16, 0.1, 1e-5)
    small = lay_out(shape, [One(1, 20, 1), One(20, 3, 2)], kv_dtype=torch.float8_e4m3fn)
    used = small.cache.keys.shape[0]
    first = 2**31 // (16 * 128)
    keys, values = (
        torch.empty(first + used, 1, 16, 128, dtype=torch.float8_e4m3fn, device=DEVICE) for _ in range(2)
    )
    keys[first:], values[first:] = small.cache.keys, small.cache.values
    wanted = attended(small)
    live = small.rows.block_tables < used
    small.rows.block_tables[live] += first
    build_plan(small.rows, small.plan, shape)
    small.cache = LayerCache(keys, values)
    assert torch.equal(attended(small), wanted)


@pytest.mark.parametrize(
    ("shape", "kv"),
    [
        (LLAMA_8B, "*bf16"),
        (LLAMA_8B, "*fp8e4nv"),
        (AttentionShape(16, 8, 256, 32, 0.06, 1e-5), "*bf16"),
    ],
    ids=["Llama-3.1-8B", "Llama-3.1-8B in FP8", "dim 256"],
)
def test_the_tiles_fit_a_hopper(hopper: HopperCompiler, shape: AttentionShape, kv: str) -> None:
    """Tensor cores, copies that run ahead of them, and all in registers."""
    pointers = dict.fromkeys(["block_tables", "first_token", "num_tokens", "position", "counts"], "*i32")
    numbers = {"max_blocks": "i32:16", "scale": "fp32", "value_scale": "fp32"}
    both = pointers | numbers | {"q": "*bf16", "out": "*bf16", "keys": kv, "values": kv}
    tile = paged_attention.prefill_tile(shape)
    prefill = hopper.compile(
        paged_attention._prefill_kernel,
        both | {"tiles": "*i32"},
        paged_attention.prefill_constants(shape),
        tile.num_warps,
        tile.num_stages,
    )
    assert "wgmma.mma_async" in prefill.ptx
    made = exponents(prefill.ptx)
    assert 4 * made["sub.f32"] < made["fma.rn.f32"], "keys that are masked are weighed like those that aren't"
    tile = paged_attention.decode_tile(shape)
    del both["num_tokens"]
    decode = hopper.compile(
        paged_attention._decode_kernel,
        both | PLANES | dict.fromkeys(["parts", "part_length"], "*i32"),
        paged_attention.decode_constants(shape),
        tile.num_warps,
        tile.num_stages,
    )
    assert "mma.sync" in decode.ptx
    for compiled in (prefill, decode):
        assert "cp.async" in compiled.ptx
        assert compiled.stack_bytes == 0
        assert compiled.shared_bytes <= 227 * 1024
    assert decode.registers * 128 * 2 <= 65_536, (
        "two programs share an SM, so that one loads while one computes"
    )


def exponents(ptx: str) -> Counter[str]:
    """The instructions that make what powers of two are taken of."""
    made = {into: name for name, into in re.findall(r"^\s+([a-z][\w.]*)\s+(%r\d+), ", ptx, re.MULTILINE)}
    return Counter(made[power] for power in re.findall(r"ex2\.approx\S*\s+%r\d+, (%r\d+);", ptx))


def test_the_plan_and_the_merge_fit_a_hopper(hopper: HopperCompiler) -> None:
    names = ["num_tokens", "position", "num_rows", "first_token", "part_length", "counts"]
    merge = hopper.compile(
        paged_attention._merge_kernel,
        dict.fromkeys(names, "*i32") | PLANES | {"capacity": "i32:16", "value_scale": "fp32", "out": "*bf16"},
        {"HEADS": 32, "DIM": 128, "DIM_PAD": 128, "MAX_PARTS": attention_plan.MAX_PARTS},
    )
    names += ["block_tables", "token_position", "token_cell", "parts", "tiles"]
    plan = hopper.compile(
        attention_plan._plan_kernel,
        dict.fromkeys(names, "*i32") | {"max_blocks": "i32:16"},
        attention_plan.constants(LLAMA_8B, max_rows=1024),
    )
    assert merge.stack_bytes == plan.stack_bytes == 0
