"""Rotation and the write of keys and values on a GPU equal their twin to the last bit of the cache, and touch
nothing but their own cells."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.kernels import kv_write, reference_gpu
from engine.kernels.attention_plan import build_plan
from engine.kernels.reference_gpu import Cells
from engine.kernels.shapes import AttentionShape, HeadNorms, LayerCache
from tests.engine.kernels.hopper import HopperCompiler
from tests.engine.kernels.interpreter import DEVICE
from tests.engine.kernels.paged_rows import PagedSequence, Pages, lay_out

One = PagedSequence
MIXED = [One(1, 31), One(3, 14), One(1, 0), One(2, 32)]
FP8 = torch.float8_e4m3fn
SHAPES = [
    AttentionShape(3, 1, 64, 16, 0.1, 1e-5),
    AttentionShape(4, 2, 80, 32, 0.1, 1e-5),
    AttentionShape(9, 3, 10, 16, 0.1, 1e-5),
]


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def qkv_of(pages: Pages, dtype: torch.dtype, seed: int = 1) -> Tensor:
    lines = pages.shape.num_heads + 2 * pages.shape.num_kv_heads
    return draw(seed, pages.q.shape[0], lines * pages.shape.head_dim).to(dtype)


def written(pages: Pages, qkv: Tensor, norms: HeadNorms | None, cos_sin: Tensor) -> tuple[Tensor, LayerCache]:
    """By the kernel: q, and a copy of the cache."""
    cache = copied(pages.cache)
    q = torch.full_like(pages.q, 7.0)
    kv_write.rotate_and_store(pages.shape, pages.plan, qkv, norms, cos_sin, cache, q)
    assert (q[pages.num_tokens :] == 7.0).all(), "nothing is written for padding"
    return q[: pages.num_tokens], cache


def copied(cache: LayerCache) -> LayerCache:
    return LayerCache(cache.keys.clone(), cache.values.clone(), cache.key_scale, cache.value_scale)


def bits(half: Tensor) -> Tensor:
    return half.contiguous().view(torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.bfloat16, FP8])
def test_the_cache_gets_what_the_twin_writes(
    shape: AttentionShape, normed: bool, kv_dtype: torch.dtype
) -> None:
    dtype = torch.float32 if kv_dtype is torch.float32 else torch.bfloat16
    scales = (0.01, 0.3) if kv_dtype is FP8 else (1.0, 1.0)
    pages = lay_out(shape, MIXED, dtype=dtype, kv_dtype=kv_dtype, scales=scales)
    qkv, cos_sin = qkv_of(pages, dtype), draw(2, 64, shape.head_dim)
    norms = None
    if normed:
        norms = HeadNorms(draw(3, shape.head_dim).to(dtype), draw(4, shape.head_dim).to(dtype))
    q, cache = written(pages, qkv, norms, cos_sin)
    wanted, wanted_q = copied(pages.cache), torch.zeros_like(pages.q)
    reference_gpu.rotate_and_store(shape, pages.rows, qkv, norms, cos_sin, wanted, wanted_q)
    rtol = 1e-5 if dtype is torch.float32 else 2**-7
    torch.testing.assert_close(q, wanted_q[: pages.num_tokens], rtol=rtol, atol=1e-5)
    mine = pages.plan.token_cell[: pages.num_tokens].long()
    others = torch.ones(pages.cache.keys.shape[0] * shape.block_size, dtype=torch.bool, device=DEVICE)
    others[mine] = False
    elsewhere = others.nonzero().flatten()
    for ours, theirs, before in (
        (cache.keys, wanted.keys, pages.cache.keys),
        (cache.values, wanted.values, pages.cache.values),
    ):
        a, b = Cells(ours)[mine].float(), Cells(theirs)[mine].float()
        torch.testing.assert_close(a, b, rtol=2**-3 if kv_dtype is FP8 else rtol, atol=2**-9)
        if kv_dtype is not torch.float32:
            assert (a != b).sum() <= 1 + 0.002 * a.numel(), "sums in another order move hardly a code"
        assert torch.equal(bits(Cells(ours)[elsewhere]), bits(Cells(before)[elsewhere]))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinities are the point
def test_what_is_too_large_saturates_and_what_is_no_number_stays_none() -> None:
    shape = AttentionShape(1, 1, 16, 16, 0.1, 1e-5)
    pages = lay_out(shape, [One(1, 4)], kv_dtype=FP8, scales=(1.0, 2.0))
    qkv = torch.zeros(pages.q.shape[0], 3 * 16, device=DEVICE)
    odd = torch.tensor([1e6, -1e6, torch.nan, torch.inf, -torch.inf, 448.0, 464.0, 896.0, 9e2, 2**-9, 2**-10])
    qkv[0, 16:27] = qkv[0, 32:43] = odd.to(DEVICE)
    _, cache = written(
        pages, qkv, None, torch.eye(2, device=DEVICE)[:1].repeat_interleave(8, 1).repeat(64, 1)
    )
    cell = pages.plan.token_cell[:1].long()
    key, value = (Cells(half)[cell].float()[0, 0, :11] for half in (cache.keys, cache.values))
    nan = torch.nan
    # 464 / 2 lies between two codes, and goes to the even one; 2^-10 is half of the smallest code.
    assert_same(value, [448.0, -448.0, nan, nan, nan, 224.0, 224.0, 448.0, 448.0, 0.0, 0.0])
    # An infinity times a sine of zero is no number either: pairs of dimensions 3 and 11, 4 and 12 are gone.
    assert_same(key[:3], [448.0, -448.0, nan])
    assert_same(key[5:8], [448.0, 448.0, 448.0])


def assert_same(ours: Tensor, wanted: list[float]) -> None:
    assert torch.equal(ours.cpu().nan_to_num(nan=-1.0), torch.tensor(wanted).nan_to_num(nan=-1.0))


def test_a_token_is_written_alike_in_any_company() -> None:
    shape, cos_sin = SHAPES[1], draw(2, 64, 80)
    norms = HeadNorms(draw(3, 80), draw(4, 80))
    alone = lay_out(shape, [One(1, 31)])
    crowd = lay_out(shape, [*MIXED[1:], One(1, 31)], max_rows=9, capacity=16, seed=5)
    qkv, at = qkv_of(crowd, torch.float32), crowd.num_tokens - 1
    mine = torch.zeros(alone.q.shape[0], qkv.shape[1], device=DEVICE)
    mine[0] = qkv[at]
    q, cache = written(alone, mine, norms, cos_sin)
    crowd_q, crowd_cache = written(crowd, qkv, norms, cos_sin)
    assert torch.equal(crowd_q[at], q[0])
    for ours, theirs in ((crowd_cache.keys, cache.keys), (crowd_cache.values, cache.values)):
        there, here = crowd.plan.token_cell[at : at + 1].long(), alone.plan.token_cell[:1].long()
        assert torch.equal(Cells(ours)[there], Cells(theirs)[here])


def test_a_block_beyond_two_to_the_31_elements_is_written() -> None:
    """The cache is reserved and not touched but for one block."""
    shape = AttentionShape(1, 1, 128, 16, 0.1, 1e-5)
    pages = lay_out(shape, [One(1, 3)], kv_dtype=FP8)
    block = 2**31 // (16 * 128) + 1
    pages.rows.block_tables[0, 0] = block
    build_plan(pages.rows, pages.plan, shape)
    keys, values = (torch.empty(block + 1, 1, 16, 128, dtype=FP8, device=DEVICE) for _ in range(2))
    keys[block], values[block] = torch.nan, torch.nan
    qkv, q = qkv_of(pages, torch.float32), torch.empty_like(pages.q)
    kv_write.rotate_and_store(shape, pages.plan, qkv, None, draw(2, 64, 128), LayerCache(keys, values), q)
    assert torch.equal(bits(values[block, 0, 3]), bits(qkv[0, 256:].to(FP8)))
    assert keys[block, 0, 3].float().isfinite().all()
    assert keys[block, 0, :3].float().isnan().all()
    assert keys[block, 0, 4:].float().isnan().all()


@pytest.mark.parametrize("kv", ["*bf16", "*fp8e4nv"])
def test_it_fits_a_hopper(hopper: HopperCompiler, kv: str) -> None:
    shape = AttentionShape(32, 8, 128, 16, 128**-0.5, 1e-5)
    compiled = hopper.compile(
        kv_write._rotate_kernel,
        {"qkv": "*bf16", "cos_sin": "*fp32", "token_position": "*i32", "token_cell": "*i32"}
        | dict.fromkeys(["query_norm", "key_norm", "q_out"], "*bf16")
        | {"keys": kv, "values": kv}
        | dict.fromkeys(["eps", "key_scale", "value_scale"], "fp32"),
        kv_write.constants(shape, normed=True, fp8=kv == "*fp8e4nv"),
        kv_write.NUM_WARPS,
    )
    assert compiled.stack_bytes == 0
    assert ("cvt.rn.satfinite.e4m3x2" in compiled.ptx) == (kv == "*fp8e4nv")
    assert "st.global.v4.b32" in compiled.ptx or "st.global.v2.b32" in compiled.ptx
