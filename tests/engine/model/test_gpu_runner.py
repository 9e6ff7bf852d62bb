"""The GPU runner in Triton's interpreter, against the same weights on the torch twins, and against itself.

Where only the company, the padding, or what the host knew differs, bits must not. Two layers, grouped heads.
With TRITON_INTERPRET=0 all of it runs on a GPU, where bits may follow a product's shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.adapter_arena import ArenaLayout
from engine.kernels.gpu import GpuKernels
from engine.kernels.host import HostKernels, HostStep
from engine.kernels.lora import GROUPS, KernelAdapter, SlotTable, prepare
from engine.kernels.reference import ReferenceKernels
from engine.kernels.shapes import E4M3_MOST, AttentionShape
from engine.model.config import ModelConfig, ModelRefused, parse_config
from engine.model.gpu_runner import GpuOptions, GpuRunner
from engine.model.graphs import EagerGraphs, Recorded
from engine.model.kv_scales import MARGIN, KvScales
from engine.model.llama import LlamaModel
from engine.model.quantization import E4M3, quantize_rows
from engine.model.sampler import choose
from engine.model.weights import expected_shapes
from tests.engine.kernels.test_kernels import Host
from tests.gpu.random_model import random_fp8_weights

CONFIG = parse_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 61,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "eos_token_id": 2,
    }
)
OPTIONS = GpuOptions(
    max_model_len=48,
    num_blocks=12,
    num_slots=3,
    max_rows=5,
    max_tokens=24,
    max_graph_tokens=8,
    max_rank=16,
    arena_bytes=1 << 19,
)
ON_GPU = os.environ.get("TRITON_INTERPRET") == "0"  # the same tests, of what is captured and compiled
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
ALL_SITES = tuple(site for sites in GROUPS.values() for site in sites)
GREEDY = Sampling(max_tokens=9, seed=0, temperature=0.0, logprobs=20)
WARM = Sampling(max_tokens=9, seed=5, temperature=1.0, top_p=0.9, logprobs=20)
TOLERANCE = 0.04  # of log-probabilities: two ways of rounding to bfloat16


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


WEIGHTS = {
    name: drawn(seed, *shape) * 0.3 for seed, (name, shape) in enumerate(expected_shapes(CONFIG).items())
}


def adapter(seed: int, rank: int, sites: tuple[str, ...] = ALL_SITES, layers: int = 2) -> KernelAdapter:
    modules = {}
    for layer in range(layers):
        for index, site in enumerate(sites):
            inputs, outputs = CONFIG.sites[site]
            a = drawn(seed + 7 * layer + index, rank, inputs) * 0.2
            b = drawn(seed + 13 * layer + index, outputs, rank) * 0.2
            modules[layer, site] = (a, b, 0.5 + index / 8)
    return prepare(Host(modules))


class Twin:
    """The same weights by torch code, which reads one plan after the other."""

    def __init__(self, scales: KvScales | None = None, config: ModelConfig = CONFIG) -> None:
        kernels = HostKernels(ReferenceKernels())
        self._model: LlamaModel[HostStep] = LlamaModel(
            config, WEIGHTS, kernels, dtype=torch.bfloat16, block_size=16, max_model_len=48
        )
        self._kernels = kernels
        shape, plain = self._model.attention, [(1.0, 1.0)] * config.num_layers
        dtype, by_layer = (torch.bfloat16, plain) if scales is None else (E4M3, scales.by_layer)
        self.caches = [kernels.new_cache(shape, 12, dtype, *scale) for scale in by_layer]
        self.slots: SlotTable = kernels.new_slots(3, config.num_layers, config.sites)

    def execute(self, rows: list[Row]) -> list[RowResult]:
        with torch.inference_mode():
            step = self._kernels.plan(self._model.attention, rows, self.slots)
            residual = self._model.forward(step, self.caches)
            ends = torch.tensor([len(row.tokens) for row in rows]).cumsum(0) - 1
            at = [int(end) for end, row in zip(ends, rows, strict=True) if row.sample]
            plans = [row.sample for row in rows if row.sample]
            choices = choose(self._model.logits(residual[at]), plans)
        sequences = [row.sequence for row in rows if row.sample]
        return [
            RowResult(s, c.token, c.logprob, [], c.error) for s, c in zip(sequences, choices, strict=True)
        ]


@pytest.fixture
def runner() -> GpuRunner:
    return GpuRunner(CONFIG, WEIGHTS, OPTIONS, DEVICE)


@pytest.fixture
def twin() -> Twin:
    return Twin()


def row(
    sequence: int,
    tokens: list[int],
    start: int = 0,
    *,
    slot: int = BASE_SLOT,
    sampling: Sampling | None = GREEDY,
    unlisted: int = 0,
) -> Row:
    sample = None if sampling is None else SamplePlan(sampling, 0, tokens, (), unlisted=unlisted)
    return Row(sequence, tokens, start, [2 * sequence, 2 * sequence + 1], slot, sample)


def run(runner: GpuRunner, *rows: Row) -> list[RowResult]:
    return runner.execute(StepPlan(1, rows, 0))


def told(result: RowResult) -> dict[int, float]:
    assert result.logprob is not None, result.error
    return dict(result.logprob.top)


def assert_same(one: RowResult, other: RowResult) -> None:
    if ON_GPU:
        assert_near([one], [replace(other, sequence=one.sequence)])
    else:
        assert told(one) == told(other)


def assert_near(ours: list[RowResult], twins: list[RowResult]) -> None:
    assert [one.sequence for one in ours] == [one.sequence for one in twins]
    for one, other in zip(ours, twins, strict=True):
        mine, theirs = told(one), told(other)
        both = mine.keys() & theirs.keys()
        assert len(both) >= 17  # of 20: those at the edge may differ
        assert max(abs(mine[token] - theirs[token]) for token in both) < TOLERANCE


def spread(results: list[RowResult]) -> float:
    """How far apart the first two are: what a test must see far above the tolerance."""
    one, other = map(told, results[:2])
    return max(abs(one[token] - other[token]) for token in one.keys() & other.keys())


def test_any_mix_of_adapters_equals_the_twin_step_after_step(runner: GpuRunner, twin: Twin) -> None:
    """Ranks 4 and 16 and base rows between each other, a prompt in chunks beside them, then another adapter
    of a lower rank and fewer sites in a slot that held one of a higher."""
    first = {0: adapter(100, 16), 1: adapter(300, 4, ("q_proj", "up_proj", "down_proj")), 2: adapter(200, 8)}
    for slot, one in first.items():
        runner.install(slot, one)
        twin.slots.install(slot, one)
    prompt = [5, 9, 11, 3, 60, 42, 7, 8, 50, 13, 21, 22, 23, 24, 25, 26, 27, 28]
    steps = [
        [row(0, prompt[:7], slot=0), row(1, prompt[:5]), row(2, prompt[:9], slot=1, sampling=None)],
        [row(1, [4], 5), row(2, prompt[9:], 9, slot=1), row(0, [8], 7, slot=0)],
        [row(0, [9], 8, slot=0), row(3, [44], slot=2), row(1, [6], 6), row(2, [3], 18, slot=1)],
    ]
    for rows in steps:
        ours = run(runner, *rows)
        assert_near(ours, twin.execute(rows))
    assert spread(ours) > 5 * TOLERANCE
    runner.clear(0)
    lower = adapter(500, 4, ("v_proj", "o_proj", "gate_proj"), layers=1)
    runner.install(0, lower)
    twin.slots.install(0, lower)
    last = [row(4, prompt[:3], slot=0), row(1, [7], 7), row(2, [5], 19, slot=1)]
    assert_near(run(runner, *last), twin.execute(last))


def test_a_row_keeps_its_bits_beside_adapters_and_in_other_buckets(runner: GpuRunner) -> None:
    """Base rows in the graph with LoRA and in that without, padded and not, with and without the prefill
    kernel."""
    runner.install(1, adapter(300, 8))
    [alone] = run(runner, row(0, [5]))
    _, crowd, _ = run(runner, row(2, [7, 8, 9], slot=1), row(1, [5]), row(3, [4]))
    assert_same(alone, crowd)
    decoded, _ = run(runner, row(1, [9], 1), row(2, [6], 3, slot=1))
    [again] = run(runner, row(0, [9], 1))
    assert_same(decoded, again)
    [adapted, _] = run(runner, row(4, [7, 8, 9], slot=1), row(5, [1, 2]))
    [alike] = run(runner, row(2, [7, 8, 9], slot=1))
    assert_same(adapted, alike)


def test_tokens_in_flight_give_the_same_answers_as_tokens_told(runner: GpuRunner) -> None:
    """Two steps at once, rows in another order, one that leaves, one that comes, drawn and greedy."""
    runner.install(0, adapter(100, 8))
    known = replace(OPTIONS)
    step_by_step = GpuRunner(CONFIG, WEIGHTS, known, DEVICE)
    step_by_step.install(0, adapter(100, 8))
    kinds = {0: (0, WARM), 1: (BASE_SLOT, GREEDY), 2: (BASE_SLOT, WARM)}

    def rows(numbers: list[int], start: int, tokens: dict[int, list[int]]) -> list[Row]:
        return [
            row(n, tokens[n], start, slot=kinds[n][0], sampling=kinds[n][1], unlisted=start) for n in numbers
        ]

    orders = [[0, 1, 2], [2, 0, 1], [1, 2]]
    prompts = {n: [3 + n, 9, 12 + n] for n in kinds}
    tokens, slow = prompts, []
    for order, start in zip(orders, (0, 3, 4), strict=True):
        slow.append(run(step_by_step, *rows(order, start, tokens)))
        tokens = {result.sequence: [result.token or 0] for result in slow[-1]}
    pending = {n: [PENDING_TOKEN] for n in kinds}
    first = runner.submit(StepPlan(1, rows(orders[0], 0, prompts), 0))
    second = runner.submit(StepPlan(2, rows(orders[1], 3, pending), 0))
    with pytest.raises(AssertionError, match="still in use"):
        runner.submit(StepPlan(3, rows(orders[2], 4, pending), 0))
    fast = [first.wait()]
    third = runner.submit(StepPlan(3, rows(orders[2], 4, pending), 0))
    fast += [second.wait(), third.wait()]
    assert [[(r.sequence, r.token, told(r)) for r in step] for step in fast] == [
        [(r.sequence, r.token, told(r)) for r in step] for step in slow
    ]


def test_keys_and_values_in_fp8_equal_the_twin() -> None:
    scales = KvScales((0.05, 0.04), (0.02, 0.03))
    runner = GpuRunner(CONFIG, WEIGHTS, replace(OPTIONS, kv_fp8=True, kv_scales=scales), DEVICE, "base")
    assert runner.base_digest == scales.digest("base")
    twin = Twin(scales)
    for rows in ([row(0, [5, 9, 11]), row(1, [4])], [row(1, [7], 1), row(0, [8], 3)]):
        assert_near(run(runner, *rows), twin.execute(rows))


def test_scales_are_measured_in_steps_that_it_can_hold(twin: Twin) -> None:
    text = tuple(range(3, 31))
    assert OPTIONS.max_tokens < len(text) <= OPTIONS.max_model_len
    runner = GpuRunner(CONFIG, WEIGHTS, replace(OPTIONS, kv_fp8=True, kv_text=text), DEVICE)
    twin.execute([row(0, list(text))])
    for ours, theirs in zip(runner.caches, twin.caches, strict=True):
        for scale, half in ((ours.key_scale, theirs.keys), (ours.value_scale, theirs.values)):
            assert scale == pytest.approx(half.abs().amax().item() * MARGIN / E4M3_MOST, rel=0.02)


def test_weights_in_fp8_answer_near_those_that_they_stand_for() -> None:
    coded = random_fp8_weights(CONFIG, DEVICE)
    plain = {
        name: tensor.to(torch.bfloat16) * coded[f"{name.removesuffix('.weight')}.weight_scale"].bfloat16()
        if tensor.dtype is E4M3
        else tensor
        for name, tensor in coded.items()
        if not name.endswith("_scale")
    }
    tokens = [5, 9, 11, 3, 60]
    [one] = run(GpuRunner(CONFIG, coded, OPTIONS, DEVICE), row(0, tokens))
    [other] = run(GpuRunner(CONFIG, plain, OPTIONS, DEVICE), row(0, tokens))
    mine, theirs = told(one), told(other)
    gaps = [abs(mine[token] - theirs[token]) for token in mine.keys() & theirs.keys()]
    assert len(gaps) >= 15
    assert 0 < max(gaps) < 0.4  # what FP8 activations cost: more than bfloat16, and far less than the spread
    assert max(mine.values()) - min(mine.values()) > 1.0


def test_codes_left_beside_a_norm_are_those_of_its_result() -> None:
    """And whatever else a linear reads is quantized when it is read."""
    shape = AttentionShape(4, 2, 16, 16, 0.25, 1e-5)
    kernels = GpuKernels(
        shape,
        max_rows=2,
        max_tokens=4,
        layout=ArenaLayout(2, CONFIG.sites, 16),
        num_slots=1,
        arena_bytes=1 << 16,
        device=DEVICE,
        dtype=torch.bfloat16,
        fp8_inputs=True,
    )
    residual, other = drawn(1, 3, 64).float().to(DEVICE), drawn(2, 3, 64).to(DEVICE)
    normed = kernels.add_norm(residual, None, drawn(3, 64).to(DEVICE), 1e-5)
    for x in (normed, other, kernels.silu_mul(drawn(4, 3, 192).to(DEVICE)), normed):
        codes, scale = kernels.quantize(x)
        wanted, wanted_scale = quantize_rows(x.cpu())  # on a GPU torch multiplies by 1 / 448
        assert torch.equal(codes.cpu().float(), wanted.float())
        assert torch.equal(scale.cpu(), wanted_scale)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, of the NaN that we want
def test_a_poisoned_adapter_fails_its_own_row_and_leaves_with_its_slot(runner: GpuRunner) -> None:
    [before] = run(runner, row(1, [5, 6, 7]))
    inputs, outputs = CONFIG.sites["down_proj"]
    factors = torch.ones(2, inputs), torch.full((outputs, 2), torch.nan), 1.0
    runner.install(2, prepare(Host({(0, "down_proj"): factors})))
    good, bad = run(runner, row(1, [5, 6, 7]), row(0, [5, 6, 7], slot=2))
    assert "finite" in bad.error
    assert bad.token is None
    assert_same(good, before)
    runner.clear(2)
    [reused] = run(runner, row(0, [5, 6, 7]))  # on the blocks that held what the adapter wrote
    assert_same(reused, before)


class CountedGraphs(EagerGraphs):
    """Says which recorded functions were replayed, and runs each while it is recorded, as a capture does."""

    def __init__(self) -> None:
        self.replayed: list[int] = []
        self._recorded = 0

    def record(self, function: Callable[[], Tensor]) -> Recorded:
        function()
        number, self._recorded = self._recorded, self._recorded + 1

        return _Counted(function, lambda: self.replayed.append(number))


class _Counted:
    def __init__(self, function: Callable[[], Tensor], count: Callable[[], None]) -> None:
        self._function = function
        self._count = count

    def replay(self) -> Tensor:
        self._count()
        return self._function()


def test_a_step_replays_the_graph_that_fits_it() -> None:
    """Base rows one without LoRA, decoding one without prefill; what is larger than all graphs runs without
    one. Recording leaves no mark."""
    graphs = CountedGraphs()
    small = replace(OPTIONS, max_graph_tokens=2, max_rows=2, num_blocks=6)
    shallow = replace(CONFIG, num_layers=1)
    runner = GpuRunner(shallow, WEIGHTS, small, DEVICE, graphs=graphs)
    assert not any(cache.keys.any() or cache.values.any() for cache in runner.caches)
    runner.install(0, adapter(100, 8, layers=1))
    runner.install(1, adapter(300, 4, ("q_proj", "v_proj"), layers=1))
    kinds: list[tuple[int, ...]] = []
    for rows in (
        [row(0, [5])],
        [row(0, [5], slot=0)],
        [row(0, [5, 6])],
        [row(0, [5], slot=1)],
        [row(0, [5]), row(1, [6])],
        [row(0, [5, 6], slot=0)],
        [row(0, [5, 6, 7])],
    ):
        graphs.replayed.clear()
        ours = run(runner, *rows)
        kinds.append(tuple(graphs.replayed))
        assert all(result.token is not None for result in ours)
    steps = [kind[0] for kind in kinds[:6]]
    assert len(set(steps)) == 6
    assert [len(kind) for kind in kinds] == [2, 2, 2, 2, 2, 2, 1]  # the last: its head alone
    assert_near(ours, Twin(config=shallow).execute([row(0, [5, 6, 7])]))


class WarmedGraphs(EagerGraphs):
    """Runs what is warmed, as on a GPU."""

    def __init__(self) -> None:
        self.results: list[Tensor] = []

    def warm(self, function: Callable[[], Tensor]) -> None:
        self.results.append(function())


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_all_that_rows_can_ask_is_sampled_once_before_it_serves(rows: int) -> None:
    """So that the memory which a crowd's draws take is known to be there."""
    graphs = WarmedGraphs()
    GpuRunner(CONFIG, WEIGHTS, replace(OPTIONS, max_rows=rows, max_graph_tokens=24), DEVICE, graphs=graphs)
    [packed] = graphs.results  # steps have graphs, the largest too
    told = max(1, rows - 2) * (2 + 2 * 20)
    assert packed.numel() == 2 * rows + told


def test_an_arena_that_holds_no_factor_is_refused() -> None:
    with pytest.raises(ModelRefused, match="holds none"):
        GpuRunner(CONFIG, WEIGHTS, replace(OPTIONS, arena_bytes=10), DEVICE)
