"""Whole steps in C++ equal the model op by op over the torch twins, and bits don't depend on company."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, Row
from engine.kernels.host import HostKernels
from engine.kernels.lora import KernelAdapter, prepare
from engine.kernels.native import NativeLibrary
from engine.kernels.native_slots import AdapterPacker
from engine.kernels.native_step import NativeKernels
from engine.kernels.reference import ReferenceKernels
from engine.kernels.shapes import LayerCache, StepKernels
from engine.model.config import ModelConfig
from engine.model.llama import LlamaModel, StepModel
from engine.model.native import NativeModel
from engine.model.rope import Rope
from engine.model.weights import expected_shapes

F32, BF16, FP8 = torch.float32, torch.bfloat16, torch.float8_e4m3fn
PLAIN = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=40,
    intermediate_size=72,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=97,
    max_position_embeddings=256,
    norm_eps=1e-5,
    rope=Rope("default", 1e4, 16, 256),
    tied_embeddings=True,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    head_norms=False,
    sliding_window=None,
    eos_token_ids=(2,),
)


def shaped(head_dim: int, **changes: Any) -> ModelConfig:
    return replace(PLAIN, head_dim=head_dim, rope=Rope("default", 1e4, head_dim, 256), **changes)


SHAPES = {
    "plain": PLAIN,
    "odd sizes, biases": shaped(
        10, hidden_size=37, intermediate_size=51, vocab_size=101, num_heads=6, num_kv_heads=2, qkv_bias=True,
        o_bias=True, mlp_bias=True, tied_embeddings=False,
    ),
    "head norms, a group of one": shaped(
        24, head_norms=True, num_heads=3, num_kv_heads=3, tied_embeddings=False,
    ),
    "one kv head, a group of 20": shaped(40, num_heads=20, num_kv_heads=1, hidden_size=64, qkv_bias=True),
}  # fmt: skip


@dataclass
class Served:
    """A model with its kernels, caches and slots."""

    model: StepModel[Any]
    kernels: StepKernels[Any]
    caches: Sequence[LayerCache]
    slots: Any

    def run(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """The residual stream and the logits of every token of the plan."""
        step = self.kernels.plan(self.model.attention, rows, self.slots)
        residual = self.model.forward(step, self.caches)[: sum(len(row.tokens) for row in rows)].clone()
        return residual, self.model.logits(residual.clone())


def weights_of(config: ModelConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = expected_shapes(config)
    drawn = {name: torch.randn(*shape, generator=generator) * 0.25 for name, shape in shapes.items()}
    return {name: (one.abs() + 0.5 if "norm" in name else one).bfloat16() for name, one in drawn.items()}


def serve(
    config: ModelConfig,
    dtype: torch.dtype,
    library: Path | None,
    *,
    cache: torch.dtype | None = None,
    threads: int = 1,
    block_size: int = 16,
) -> Served:
    """`library` None: the twins."""
    weights = weights_of(config)
    if library is None:
        host = HostKernels(ReferenceKernels())
        model: StepModel[Any] = LlamaModel(
            config, weights, host, dtype=dtype, block_size=block_size, max_model_len=256
        )
        kernels: StepKernels[Any] = host
    else:
        native = NativeLibrary(library, threads)
        if not native.serves(dtype):
            pytest.skip(f"this processor computes no whole steps in {dtype}")
        model = NativeModel(config, weights, native, dtype=dtype, block_size=block_size, max_model_len=256)
        kernels = NativeKernels(AdapterPacker(native, dtype, config.num_layers, config.sites))
    scales = (0.02, 0.01) if cache is FP8 else (1.0, 1.0)
    caches = [
        kernels.new_cache(model.attention, 24, cache or dtype, *scales) for _ in range(config.num_layers)
    ]
    return Served(model, kernels, caches, kernels.new_slots(8, config.num_layers, config.sites))


@dataclass(frozen=True)
class Host:
    modules: dict[tuple[int, str], tuple[Tensor, Tensor, float]]


def adapter(config: ModelConfig, rank: int, dtype: torch.dtype, sites: Sequence[str] = ()) -> KernelAdapter:
    generator = torch.Generator().manual_seed(rank)
    modules = {}
    for layer in range(config.num_layers):
        for site, (inputs, outputs) in config.sites.items():
            if not sites or (site in sites and layer == 1):
                a = torch.randn(rank, inputs, generator=generator) * 0.2
                b = torch.randn(outputs, rank, generator=generator) * 0.2
                modules[layer, site] = (a.to(dtype), b.to(dtype), 1.0 / rank)
    return prepare(Host(modules))


def install_all(served: Served, config: ModelConfig) -> None:
    """Ranks 1 to 256, all factor dtypes, all sites and some; slots 3 and 5 stay empty."""
    served.slots.install(0, adapter(config, 1, BF16))
    served.slots.install(1, adapter(config, 3, F32, ["q_proj", "v_proj", "down_proj"]))
    served.slots.install(2, adapter(config, 8, torch.float16, ["k_proj", "up_proj"]))
    served.slots.install(4, adapter(config, 17, BF16, ["o_proj", "gate_proj"]))
    served.slots.install(6, adapter(config, 256, BF16))
    served.slots.install(7, adapter(config, 64, F32))


def tokens(count: int, seed: int) -> list[int]:
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def mix() -> list[list[Row]]:
    """Three steps: prompts whole and cut, then rows that go on beside others, of adapters and the base."""
    long, short = tokens(90, 1), tokens(40, 2)
    tables = [[11, 3, 7, 19, 1, 14], [0, 22, 9], [5, 6], [21, 8, 2]]
    return [
        [
            Row(0, long[:35], 0, tables[0], 6),
            Row(1, short[:17], 0, tables[1], BASE_SLOT),
            Row(2, [7], 0, tables[2], 0),
        ],
        [
            Row(1, short[17:18], 17, tables[1], BASE_SLOT),
            Row(0, long[35:71], 35, tables[0], 6),
            Row(2, [9], 1, tables[2], 0),
            Row(3, short, 0, tables[3], 7),
        ],
        [
            Row(2, [5, 6], 2, tables[2], 0),
            Row(3, [4], 40, tables[3], 1),
            Row(1, [8], 18, tables[1], 2),
            Row(0, long[71:72], 71, tables[0], 4),
        ],
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "cache"), [(F32, F32), (BF16, BF16), (BF16, FP8)])
def test_steps_equal_the_model_op_by_op(
    kernels_library: Path, shape: str, dtype: torch.dtype, cache: torch.dtype
) -> None:
    config = SHAPES[shape]
    ours = serve(config, dtype, kernels_library, cache=cache, threads=2)
    twins = serve(config, dtype, None, cache=cache)
    for served in (ours, twins):
        install_all(served, config)
    for rows in mix():
        pairs = list(zip(ours.run(rows), twins.run(rows), strict=True))
        for mine, theirs in pairs:
            if dtype is F32:
                torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-4)
            else:  # bfloat16 is rounded at other places
                assert (mine - theirs).norm() <= (0.03 if cache is BF16 else 0.06) * theirs.norm()


@pytest.mark.parametrize(("dtype", "cache"), [(F32, F32), (BF16, BF16), (BF16, FP8)])
@pytest.mark.parametrize("shape", ["plain", "odd sizes, biases"])
def test_bits_depend_on_the_sequence_alone(
    kernels_library: Path, shape: str, dtype: torch.dtype, cache: torch.dtype
) -> None:
    """One prompt of 90 at once; then cut anyhow, in other blocks and longer ones, beside others, in another
    slot, by other numbers of threads."""
    config, prompt = SHAPES[shape], tokens(90, 4)

    def computed(
        cuts: Sequence[int], *, threads: int, slot: int, crowd: int = 0, block_size: int = 16
    ) -> Tensor:
        served = serve(config, dtype, kernels_library, cache=cache, threads=threads, block_size=block_size)
        for number in (slot, 5):
            served.slots.install(number, adapter(config, 12 if number == slot else 9, BF16))
        out, at = [], 0
        for cut in cuts:
            row = Row(0, prompt[at : at + cut], at, [20, 3, 8, 1, 17, 2], slot)
            others = [
                Row(1 + i, tokens(1 + i % 3, i), 0, [9 + i], (5, BASE_SLOT, slot)[i % 3])
                for i in range(crowd)
            ]
            rows = [*others[: crowd // 2], row, *others[crowd // 2 :]]
            first = sum(len(other.tokens) for other in others[: crowd // 2])
            out.append(served.run(rows)[1][first : first + cut])
            at += cut
        return torch.cat(out)

    whole = computed([90], threads=1, slot=0)
    assert torch.isfinite(whole).all()
    assert torch.equal(whole, computed([1] * 90, threads=1, slot=2))
    assert torch.equal(whole, computed([17, 3, 50, 1, 19], threads=3, slot=1, crowd=7))
    assert torch.equal(whole, computed([64, 26], threads=2, slot=0, crowd=2, block_size=48))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_any_number_of_rows_gives_each_its_own_bits(kernels_library: Path, dtype: torch.dtype) -> None:
    served = serve(PLAIN, dtype, kernels_library)
    install_all(served, PLAIN)
    slots = [BASE_SLOT, 6, 0, 6, 7]
    rows = [Row(i, [i % 97], 0, [i % 24], slots[i % 5]) for i in range(24)]
    alone = torch.cat([served.run([row])[1] for row in rows])
    for count in (2, 3, 5, 12, 16, 17, 24):
        assert torch.equal(served.run(rows[:count])[1], alone[:count])


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_what_was_in_a_block_or_a_slot_before_does_not_leak(
    kernels_library: Path, dtype: torch.dtype
) -> None:
    fresh, used = (serve(PLAIN, dtype, kernels_library) for _ in range(2))
    for cache in used.caches:
        cache.keys.fill_(torch.nan)
        cache.values.fill_(torch.nan)
    used.slots.install(1, adapter(PLAIN, 256, BF16))
    for served in (fresh, used):
        served.slots.install(1, adapter(PLAIN, 5, BF16, ["up_proj", "q_proj"]))
    for length in (1, 2, 3, 15, 16, 17):
        row = Row(0, tokens(length, length), 0, [4, 9], 1)
        assert torch.equal(fresh.run([row])[1], used.run([row])[1])
        assert torch.equal(
            fresh.run([Row(0, [3], length, [4, 9], 1)])[1], used.run([Row(0, [3], length, [4, 9], 1)])[1]
        )
    used.slots.clear(1)
    with pytest.raises(AssertionError, match="slot 1 is empty"):
        used.run([Row(0, [1], 0, [0], 1)])


def test_a_poisoned_row_keeps_its_poison(kernels_library: Path) -> None:
    served = serve(PLAIN, BF16, kernels_library, cache=FP8)
    bad = prepare(Host({(0, "v_proj"): (torch.full((1, 40), 3e38), torch.ones(32, 1), 1.0)}))
    served.slots.install(0, bad)
    rows = [Row(0, [5, 6, 7], 0, [0], 0), Row(1, [5, 6, 7], 0, [1], BASE_SLOT)]
    mixed = served.run(rows)[1]
    assert not torch.isfinite(mixed[:3]).any()
    assert torch.equal(mixed[3:], served.run([replace(rows[1], block_table=[2])])[1])


def test_float8_numbers_are_those_of_torch(kernels_library: Path) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FP8).float()
    drawn = torch.randn(4096, generator=torch.Generator().manual_seed(1)) * torch.logspace(-4, 3, 4096)
    halfway = (every[:126] + every[1:127]) / 2
    edge = torch.tensor([449.0, 464.0, 1e9, -1e9, torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-30])
    numbers = torch.cat([every, drawn, halfway, -halfway, edge])
    numbers = torch.cat([numbers, torch.zeros(-len(numbers) % 16)])
    codes, again = NativeLibrary(kernels_library, 1).float8(numbers)
    wanted = torch.where(numbers.isfinite(), numbers.clamp(-448, 448), torch.nan).to(FP8)
    finite = numbers.isfinite()
    assert torch.equal(codes[finite], wanted.view(torch.uint8)[finite])
    assert torch.equal(again[finite], wanted.float()[finite])
    assert again[~finite].isnan().all()


def test_an_adapter_counts_the_memory_that_it_takes(kernels_library: Path) -> None:
    """Whole huge pages, that is: but not for one that would leave most of a page empty."""
    packer = AdapterPacker(NativeLibrary(kernels_library, 1), F32, PLAIN.num_layers, PLAIN.sites)
    wide = adapter(PLAIN, 256, F32)
    rows, columns = PLAIN.sites["q_proj"]
    tiny = prepare(Host({(0, "q_proj"): (torch.ones(1, rows), torch.ones(columns, 1), 1.0)}))
    for one in (wide, tiny):
        packed = packer.pack(one)
        assert packed.num_bytes == len(packed.arena._map)
        assert packed.num_bytes >= one.num_bytes
    assert packed.num_bytes <= 64 * 1024


def test_weights_are_there_once_when_they_are_packed(kernels_library: Path) -> None:
    library = NativeLibrary(kernels_library, 1)
    weights = weights_of(PLAIN)
    given = {name: weakref.ref(weight) for name, weight in weights.items()}
    model = NativeModel(PLAIN, weights, library, dtype=F32, block_size=16, max_model_len=256)
    del weights
    assert model.config is PLAIN
    assert [name for name, weight in given.items() if weight() is not None] == []
