"""A KV cache in FP8: its codes, budget, scales and names, and the guard that finds what is not finite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor

from engine.calibrate import run as calibrate
from engine.core.plan import BASE_SLOT, Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.lora import KernelAdapter, prepare
from engine.kernels.reference import ReferenceKernels
from engine.kernels.shapes import AttentionShape, HostOps, LayerCache, cut_chunks, new_cache
from engine.model.config import ModelRefused
from engine.model.group import Group
from engine.model.guard import NOT_FINITE, all_finite, bad_rows
from engine.model.kv_scales import MARGIN, KvScales, write_scales
from engine.model.quantization import E4M3
from engine.model.runner import ModelRunner, RunnerOptions
from engine.model.sharding import Shard
from tests.engine.kernels.test_kernels import Host
from tests.engine.model.test_families import make

SHAPE = AttentionShape(4, 2, 24, 16, 0.2, 1e-6)
GREEDY = Sampling(max_tokens=4, seed=0, temperature=0.0, logprobs=3)
WORDS = [f"w{i}" for i in range(97)]


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a tokenizer."""
    path = tmp_path_factory.mktemp("model")
    make("llama", path)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    numbers = torch.randint(3, 97, (150,), generator=torch.Generator().manual_seed(2)).tolist()
    path.write_text(" ".join(WORDS[number] for number in numbers))
    return path


@pytest.fixture(scope="module")
def scales(folder: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scales") / "scales.json"
    path.with_name("text.txt").write_text(text.read_text())
    assert calibrate(folder, path, text, quantization="none", threads=1) == 0
    return path


def options(scales: Path | None = None, **changes: object) -> RunnerOptions:
    kv = "auto" if scales is None else "fp8_e4m3"
    plain = RunnerOptions("bfloat16", 64, num_blocks=8, num_slots=2, num_threads=1)
    return replace(plain, kv_cache_dtype=kv, kv_scales=scales, **changes)  # type: ignore[arg-type]


# The cache


def attended(cache: LayerCache, qkv: Tensor) -> Tensor:
    ops, chunks = ReferenceKernels(), cut_chunks([(len(qkv), 0, [3, 1, 5])], SHAPE)
    q = ops.rotate_and_store(SHAPE, chunks, qkv, None, draw(2, 64, 24), cache)
    return ops.attend(SHAPE, chunks, q, cache)


def test_attention_over_codes_is_near_attention_over_numbers() -> None:
    qkv = (draw(1, 40, 8 * 24) * 3).bfloat16()
    coded = new_cache(SHAPE, 8, E4M3, 0.05, 0.04)
    found, wanted = attended(coded, qkv), attended(new_cache(SHAPE, 8, torch.bfloat16), qkv)
    assert found.dtype is torch.bfloat16
    values = qkv[:, 6 * 24 :].float().view(40, 2, 24)
    held = coded.values[[3, 1, 5]].float()[:, 0, :, :, :24].transpose(1, 2).flatten(0, 1)[:40] * 0.04
    torch.testing.assert_close(held, values, rtol=2.0**-4, atol=1e-3)
    assert (found - wanted).abs().mean() < 0.1 * wanted.abs().mean()
    assert not torch.equal(found, wanted)


def test_codes_saturate_and_what_is_not_finite_stays_to_be_found() -> None:
    qkv = torch.ones(3, 8 * 24)
    qkv[0, 6 * 24] = 1e6
    qkv[1, 6 * 24 + 1] = torch.inf
    cache = new_cache(SHAPE, 8, E4M3, 0.05, 0.5)
    out = attended(cache, qkv)
    assert cache.values[3, 0, 0, 0, 0].float() * 0.5 == 224.0
    assert cache.values[3, 0, 0, 1, 1].float().isnan()
    assert out[1].isnan().any()
    assert attended(cache, qkv[:1]).isfinite().all()


def test_half_the_bytes_a_token_are_twice_the_blocks(folder: Path, scales: Path) -> None:
    budget = 10 * 2 * 2 * 16 * 2 * 16 * 2  # K and V, layers, positions, kv heads, padded head, bytes
    blocks = [
        ModelRunner(folder, options(file, num_blocks=None, kv_bytes=budget)).num_blocks
        for file in (None, scales)
    ]
    assert blocks == [10, 20]


# Scales


def test_measured_scales_reach_what_the_text_reached_with_a_margin(folder: Path, text: Path) -> None:
    runner = ModelRunner(folder, options(max_model_len=200, num_blocks=16))
    tokens = [WORDS.index(word) for word in text.read_text().split()]
    found = runner.measure_kv_scales(tokens)
    runner.submit(StepPlan(1, [Row(0, tokens, 0, list(range(16)), BASE_SLOT)], 0)).wait()
    for layer, cache in enumerate(runner._caches):
        key, value = cache.keys.abs().max().item(), cache.values.abs().max().item()
        assert found.keys[layer] == pytest.approx(key * MARGIN / 448, rel=1e-2)
        assert found.values[layer] == pytest.approx(value * MARGIN / 448, rel=1e-2)


def test_each_way_of_keeping_kv_names_other_kv(folder: Path, scales: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    raw = json.loads(scales.read_text())
    other.write_text(json.dumps({**raw, "keys": [2 * key for key in raw["keys"]]}))
    runners = [ModelRunner(folder, options()), *(ModelRunner(folder, options(s)) for s in (scales, other))]
    assert len({runner.base_digest for runner in runners}) == 3
    assert ModelRunner(folder, options(scales)).base_digest == runners[1].base_digest


def test_scales_are_measured_at_start_where_there_are_none(folder: Path) -> None:
    runner = ModelRunner(folder, replace(options(), kv_cache_dtype="fp8_e4m3"))
    assert all(cache.is_fp8 and cache.key_scale > 0 and cache.value_scale > 0 for cache in runner._caches)


@pytest.mark.parametrize(
    ("key", "value"),
    [("k_scale", "v_scale"), ("k_proj.output_scale", "v_proj.output_scale"), ("kv_scale", "kv_scale")],
)
def test_scales_come_from_the_checkpoint(folder: Path, tmp_path: Path, key: str, value: str) -> None:
    tensors = {k: v for path in folder.glob("model-*.safetensors") for k, v in load_file(path).items()}
    for layer in range(2):
        prefix = f"model.layers.{layer}.self_attn."
        tensors |= {prefix + value: torch.tensor([0.5 + layer]), prefix + key: torch.tensor(0.25 + layer)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    runner = ModelRunner(tmp_path, replace(options(), kv_cache_dtype="fp8_e4m3"))
    found = [(cache.key_scale, cache.value_scale) for cache in runner._caches]
    assert found == [(0.25 + i, (0.25 if key == value else 0.5) + i) for i in range(2)]
    del tensors[f"model.layers.1.self_attn.{value}"]
    save_file(tensors, tmp_path / "model.safetensors")
    if key != value:
        with pytest.raises(ModelRefused, match="scales of keys and values"):
            ModelRunner(tmp_path, options())


def test_scales_that_do_not_fit_are_refused(folder: Path, scales: Path, tmp_path: Path) -> None:
    file = tmp_path / "scales.json"
    raw = json.loads(scales.read_text())

    def refusal(content: object) -> str:
        file.write_text(json.dumps(content))
        with pytest.raises(ModelRefused) as caught:
            ModelRunner(folder, options(file))
        return str(caught.value)

    assert "other weights" in refusal({**raw, "base_digest": "0" * 64})
    assert "2 layers" in refusal({**raw, "keys": raw["keys"][:1], "values": raw["values"][:1]})
    assert "format" in refusal({**raw, "format": "another"})
    assert "positive" in refusal({**raw, "keys": [0.0, 1.0]})
    assert "positive" in refusal({**raw, "values": raw["values"][:1]})
    assert "does not hold KV scales" in refusal([1, 2])
    file.unlink()
    with pytest.raises(ModelRefused, match="can't be read"):
        ModelRunner(folder, options(file))
    with pytest.raises(ModelRefused, match="bfloat16 only"):
        ModelRunner(folder, replace(options(scales), dtype="float32"))
    with pytest.raises(ModelRefused, match="in FP8"):
        ModelRunner(folder, replace(options(), kv_scales=scales))
    group = Group(Shard(0, 2), tmp_path / "meeting-point", device=torch.device("cpu"))
    with pytest.raises(ModelRefused, match="several processes"):
        ModelRunner(folder, replace(options(), kv_cache_dtype="fp8_e4m3"), group=group)


def test_calibration_says_why_it_can_not_be_done(
    folder: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    out = tmp_path / "scales.json"
    assert calibrate(folder, out, empty, quantization="none", threads=1) == 1
    assert calibrate(folder, out, tmp_path / "none.txt", quantization="none", threads=1) == 1
    assert calibrate(folder, out, text, quantization="int3", threads=1) == 1
    assert calibrate(tmp_path, out, text, quantization="none", threads=1) == 1
    told = capsys.readouterr().err.splitlines()
    for line, reason in zip(told, ("empty", "No such file", "int3", "without a tokenizer"), strict=True):
        assert reason in line
    assert not out.exists()
    assert calibrate(folder, out, text, quantization="fp8", threads=1) == 0
    assert len(json.loads(out.read_text())["keys"]) == 2


# The guard


def sampled(number: int, tokens: list[int], slot: int = BASE_SLOT) -> Row:
    return Row(number, tokens, 0, blocks(number), slot, SamplePlan(GREEDY, 0, tokens, ()))


def blocks(number: int) -> list[int]:
    return [2 * number, 2 * number + 1]


def run(runner: ModelRunner, *rows: Row) -> dict[int, RowResult]:
    return {result.sequence: result for result in runner.submit(StepPlan(1, rows, 0)).wait()}


def poison(runner: ModelRunner, layer: int, site: str) -> KernelAdapter:
    inputs, outputs = runner.config.sites[site]
    factors = (torch.full((2, inputs), 3e38), torch.full((outputs, 2), 3e38), 1.0)
    return prepare(Host({(layer, site): factors}))


def test_the_guard_finds_the_rows_and_only_them() -> None:
    residual = draw(1, 9, 8)
    residual[3, 2], residual[4, 0], residual[8, 1] = torch.nan, -torch.inf, torch.nan
    finite = all_finite(residual)
    assert bad_rows(finite, [3, 2, 1, 2]) == [False, True, False, False]  # the last is padding
    assert bad_rows(finite[4:5], [1]) == [True]


@pytest.fixture(params=["kernels", "twins"])
def ops(request: pytest.FixtureRequest) -> HostOps | None:
    """The ones served with here, and the slow ones."""
    return ReferenceKernels() if request.param == "twins" else None


def guarded(fp8: str, folder: Path, scales: Path) -> RunnerOptions:
    if fp8 != "kv and weights":
        return options(None if fp8 == "nothing" else scales)
    quantized = replace(options(), quantization="fp8")
    own = scales.with_name("quantized.json")
    if not own.exists():
        assert calibrate(folder, own, scales.with_name("text.txt"), quantization="fp8", threads=1) == 0
    return replace(quantized, kv_cache_dtype="fp8_e4m3", kv_scales=own)


@pytest.mark.parametrize("fp8", ["nothing", "kv", "kv and weights"])
@pytest.mark.parametrize("site", ["v_proj", "k_proj", "gate_proj"])
def test_a_row_that_is_not_finite_fails_alone_in_prefill_too(
    folder: Path, scales: Path, ops: HostOps | None, fp8: str, site: str
) -> None:
    runner = ModelRunner(folder, guarded(fp8, folder, scales), ops)
    tokens = list(range(3, 23))
    good = run(runner, sampled(0, tokens), sampled(3, tokens[:7]))
    runner.install(1, poison(runner, 0, site))
    chunk = Row(1, tokens, 0, blocks(1), 1)  # of a longer prompt: nothing is sampled
    asked = Row(2, tokens, 0, blocks(2), 1, SamplePlan(GREEDY, 0, tokens, ()), prompt_logprobs=True)
    found = run(runner, sampled(0, tokens), chunk, asked, sampled(3, tokens[:7]))
    assert {number: result.error for number, result in found.items()} == {
        0: "", 1: NOT_FINITE, 2: NOT_FINITE, 3: "",
    }  # fmt: skip
    assert found[1].token is found[2].token is None
    assert (found[0], found[3]) == (good[0], good[3]), "the others keep every bit"
    for number in (1, 2):
        reused = run(runner, sampled(number, tokens))  # on the blocks that hold what was not finite
        assert replace(reused[number], sequence=0) == good[0]
        short = run(runner, sampled(number, tokens[:7]))
        assert replace(short[number], sequence=3) == good[3], "stale positions are behind the last"


def test_scales_by_hand_are_written_and_read(folder: Path, tmp_path: Path) -> None:
    digest = ModelRunner(folder, options()).base_digest
    write_scales(tmp_path / "s.json", KvScales((0.5, 0.25), (1.0, 2.0)), digest)
    caches = ModelRunner(folder, options(tmp_path / "s.json"))._caches
    assert [(cache.key_scale, cache.value_scale) for cache in caches] == [(0.5, 1.0), (0.25, 2.0)]
