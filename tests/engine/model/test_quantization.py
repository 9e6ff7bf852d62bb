"""FP8 weights: codes, products, published checkpoints, and all that is refused by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.core.plan import BASE_SLOT, Row
from engine.kernels.host import HostKernels, HostStep
from engine.kernels.lora import prepare
from engine.kernels.reference import ReferenceKernels
from engine.model.config import ModelRefused, read_config
from engine.model.linear import Fp8CudaLinear, Fp8Linear, fused_linear, new_linear
from engine.model.llama import LlamaModel
from engine.model.quantization import E4M3, linear_modules, quantize_rows, to_codes
from engine.model.runner import ModelRunner, RunnerOptions
from engine.model.weights import load_weights
from tests.engine.kernels.test_kernels import Host
from tests.engine.model.test_families import make

FLOAT32 = RunnerOptions("float32", 200, num_blocks=16, num_slots=1, num_threads=1)
CHANNEL = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "version": "0.9.1",
    "global_compression_ratio": 1.5,
    "kv_cache_scheme": None,
    "sparsity_config": {},
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "output_activations": None,
            "weights": {
                "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False,
                "group_size": None, "block_structure": None, "actorder": None, "observer": "minmax",
                "observer_kwargs": {},
            },
            "input_activations": {
                "num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True,
                "group_size": None, "block_structure": None, "observer": None, "observer_kwargs": {},
            },
        }
    },
}  # fmt: skip
TENSOR = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def edited(config: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with the field at a dotted path set."""
    changed = copy.deepcopy(config)
    *parents, last = path.split(".")
    place = changed
    for name in parents:
        place = place[name]
    place[last] = value
    return changed


# Codes


def test_codes_round_to_nearest_saturate_and_keep_what_is_not_finite_as_nan() -> None:
    x = torch.tensor([0.0, 1.0, 17.0, 19.0, 447.0, 460.0, 1e9, -1e9, 1e-9])
    assert to_codes(x).float().tolist() == [0, 1, 16, 20, 448, 448, 448, -448, 0]
    assert to_codes(torch.tensor([torch.inf, -torch.inf, torch.nan])).float().isnan().all()


def test_a_row_is_scaled_to_its_largest_number() -> None:
    x = draw(1, 7, 64) * torch.logspace(-20, 20, 7).unsqueeze(1)
    x[3] = 0
    codes, scale = quantize_rows(x)
    assert codes.float().abs().amax(dim=1).tolist() == [448, 448, 448, 0, 448, 448, 448]
    error = (codes.float() * scale - x).abs()
    largest = x.abs().amax(dim=1, keepdim=True)
    assert bool((error <= x.abs() * 2.0**-4 + largest / 448 * 2.0**-10).all())
    for row in range(7):
        alone, own = quantize_rows(x[row : row + 1])
        assert torch.equal(alone.view(torch.uint8), codes[row : row + 1].view(torch.uint8))
        assert own == scale[row]


def test_a_row_that_is_not_finite_hides_nothing_and_spoils_no_other() -> None:
    x = draw(1, 3, 16)
    good, _ = quantize_rows(x)
    x[1, 5], x[2, 7] = torch.inf, torch.nan
    codes, scale = quantize_rows(x)
    assert torch.equal(codes[0].view(torch.uint8), good[0].view(torch.uint8))
    assert (codes.float() * scale)[1].isnan().any()
    assert (codes.float() * scale)[2].isnan().any()


# Products


def layer(
    dtype: torch.dtype, outputs: int = 96, inputs: int = 64
) -> tuple[Fp8Linear, Tensor, Tensor, Tensor]:
    codes, scale = quantize_rows(draw(2, outputs, inputs) * 0.05)
    bias = draw(3, outputs).to(dtype)
    linear = new_linear(codes, bias, scale, dtype)
    assert isinstance(linear, Fp8Linear)
    return linear, codes, scale, bias


def by_definition(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """What the format means, in float64."""
    largest = x.double().abs().amax(dim=1, keepdim=True)
    seen = (x.double() / largest * 448).float().to(E4M3).double() * largest / 448
    return seen @ (codes.double() * scale.double()).T + bias.double()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1.6e-2)])
def test_a_product_is_that_of_what_codes_stand_for(dtype: torch.dtype, tolerance: float) -> None:
    linear, codes, scale, bias = layer(dtype)
    x = draw(4, 40, 64).to(dtype)
    wanted = by_definition(x, codes, scale, bias)
    torch.testing.assert_close(linear(x).double(), wanted, rtol=tolerance, atol=tolerance / 4)
    exact = x.double() @ (codes.double() * scale.double()).T + bias.double()
    assert (wanted - exact).abs().max() > 10 * (linear(x).double() - wanted).abs().mean()


def test_a_row_keeps_its_bits_in_any_crowd() -> None:
    linear, *_ = layer(torch.bfloat16, 1536, 576)
    x = draw(5, 300, 576).bfloat16()
    whole = linear(x)
    for rows in (1, 2, 3, 9, 31, 100, 255, 257):
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows])


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("biased", [False, True])
def test_the_gpu_product_is_the_twins(rows: int, biased: bool) -> None:
    """`torch._scaled_mm` runs on CPUs too, so its call is held to the twin here. Not yet run on a GPU."""
    _, codes, scale, bias = layer(torch.bfloat16)
    x = draw(6, rows, 64).bfloat16()
    found = Fp8CudaLinear(codes, scale, bias if biased else None)(x)
    wanted = by_definition(x, codes, scale, bias if biased else torch.zeros_like(bias))
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-3)
    with pytest.raises(ModelRefused, match="multiples of 16"):
        Fp8CudaLinear(codes[:40], scale[:40], None)


def test_a_fused_product_is_in_fp8_as_a_whole_or_refused() -> None:
    codes, scale = quantize_rows(draw(2, 32, 64))
    weights = {"q.weight": codes, "q.weight_scale": scale, "k.weight": draw(3, 16, 64)}
    with pytest.raises(ModelRefused, match="some are in FP8"):
        fused_linear(weights, ["q", "k"], torch.float32)


# Checkpoints


Edit = Callable[[dict[str, Any], dict[str, Tensor]], object]


class Published:
    """A small model, its FP8 checkpoint in a published layout, and the same numbers in float32."""

    def __init__(self, folder: Path, config: dict[str, Any], *, by_channel: bool) -> None:
        self.folder, self.plain = folder / "fp8", folder / "plain"
        make("llama-tied-biased" if by_channel else "llama", self.plain)
        tensors = {
            name: tensor
            for path in self.plain.glob("model*.safetensors")
            for name, tensor in load_file(path).items()
        }
        modules = set(linear_modules(read_config(self.plain))) - {"lm_head"}
        self.tensors: dict[str, Tensor] = dict(tensors)
        for module in modules:
            weight = tensors[f"{module}.weight"]
            size = weight.abs().amax(dim=1, keepdim=True) if by_channel else weight.abs().amax()
            codes = to_codes(weight / (size / 448))
            self.tensors[f"{module}.weight"] = codes
            scale = size / 448
            self.tensors[f"{module}.weight_scale"] = scale.bfloat16().float() if by_channel else scale
            if not by_channel:
                self.tensors[f"{module}.input_scale"] = torch.tensor(0.02)
        self.config = {**json.loads((self.plain / "config.json").read_text()), "quantization_config": config}
        self.write()
        for path in self.plain.glob("model*"):
            path.unlink()
        meant = {
            name: tensor.float() * self.tensors.get(f"{name}_scale", torch.tensor(1.0))
            for name, tensor in self.tensors.items()
            if not name.endswith("_scale")
        }
        save_file(meant, self.plain / "model.safetensors")

    def write(self, edit: Edit | None = None) -> Path:
        """The checkpoint, edited or not."""
        config, tensors = copy.deepcopy(self.config), dict(self.tensors)
        if edit is not None:
            edit(config, tensors)
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, self.folder / "model.safetensors")
        return self.folder


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return Published(tmp_path_factory.mktemp("channel"), CHANNEL, by_channel=True)


@pytest.fixture(scope="module")
def tensor(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return Published(tmp_path_factory.mktemp("tensor"), TENSOR, by_channel=False)


@pytest.fixture
def published(request: pytest.FixtureRequest) -> Iterator[Published]:
    """The one that the test names, whole again afterwards."""
    found: Published = request.getfixturevalue(request.param)
    yield found
    found.write()


def logits_of(runner: ModelRunner, tokens: list[int]) -> Tensor:
    row = Row(0, tokens, 0, list(range(16)), BASE_SLOT)
    with torch.inference_mode():
        step = runner._kernels.plan(runner._model.attention, [row], runner._slots)
        return runner._model.logits(runner._model.forward(step, runner._caches)[: len(tokens)])


def llama(runner: ModelRunner) -> LlamaModel[HostStep]:
    model: object = runner._model
    assert isinstance(model, LlamaModel)
    return model


def with_seen_activations(runner: ModelRunner) -> ModelRunner:
    """A float32 runner whose layers see activations as FP8 has them: what an FP8 checkpoint means."""
    for held in llama(runner)._layers:
        for group, product in list(held.linears.items()):

            def seen(x: Tensor, product: Any = product) -> Tensor:
                largest = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-20)
                codes = (x / (largest / 448)).clamp(-448, 448).to(E4M3)
                result: Tensor = product(codes.float() * (largest / 448))
                return result

            held.linears[group] = seen  # type: ignore[index]  # a Mapping to everyone else
    return runner


@pytest.mark.parametrize("published", ["channel", "tensor"], indirect=True)
def test_a_published_checkpoint_computes_what_it_means(published: Published) -> None:
    tokens = torch.randint(3, 97, (70,), generator=torch.Generator().manual_seed(2)).tolist()
    found = logits_of(ModelRunner(published.folder, FLOAT32), tokens)
    plain = ModelRunner(published.plain, FLOAT32, ReferenceKernels())
    wanted = logits_of(with_seen_activations(plain), tokens)
    close = (found - wanted).abs().amax(dim=1) < 2e-3 * wanted.abs().max()
    assert close.float().mean() > 0.9, "a rounding that flips one code moves a row a little"
    assert (found - wanted).abs().mean() < 5e-3 * wanted.abs().mean()
    unseen = logits_of(ModelRunner(published.plain, FLOAT32), tokens)
    assert (found - unseen).abs().mean() > 5 * (found - wanted).abs().mean(), "activations are quantized"


@pytest.mark.parametrize("published", ["channel"], indirect=True)
def test_quantizing_at_load_is_by_channel_and_names_other_kv(published: Published) -> None:
    plain = ModelRunner(published.plain, FLOAT32)
    ours = ModelRunner(published.plain, RunnerOptions("float32", 200, 16, num_threads=1, quantization="fp8"))
    theirs = ModelRunner(published.folder, FLOAT32)
    assert len({runner.base_digest for runner in (plain, ours, theirs)}) == 3
    tokens = list(range(3, 60))
    found, wanted = logits_of(ours, tokens), logits_of(theirs, tokens)
    assert (found - wanted).abs().mean() < 0.05 * wanted.abs().mean()
    again = RunnerOptions("float32", 200, 16, num_threads=1, quantization="fp8")
    assert ModelRunner(published.folder, again).base_digest == theirs.base_digest, "it is in FP8 already"


def test_lora_reads_activations_before_they_are_quantized(tensor: Published) -> None:
    """Of a row with one large number, FP8 has zeros for the small ones. An adapter that reads only those must
    see them."""
    options = RunnerOptions("float32", 64, 16, num_slots=1, num_threads=1, quantization="fp8")
    runner = ModelRunner(tensor.plain, options, ReferenceKernels())
    x = torch.full((3, 48), 1e-6)
    x[:, 0] = 448.0
    codes, _ = quantize_rows(x)
    assert codes.float()[:, 1:].eq(0).all(), "else the test shows nothing"
    a = torch.full((1, 48), 1.0)
    a[0, 0] = 0.0
    modules = {(0, "q_proj"): (a, torch.full((48, 1), 1e6), 2.0)}
    runner.install(0, prepare(Host(modules)))
    rows = [Row(0, [1, 2], 0, [0], 0), Row(1, [3], 0, [1], BASE_SLOT)]
    step = runner._kernels.plan(runner._model.attention, rows, runner._slots)
    product = llama(runner)._layers[0].linears["qkv"]
    x = torch.cat((x, torch.zeros(len(step.tokens) - 3, 48)))
    kernels: object = runner._kernels
    assert isinstance(kernels, HostKernels)
    delta = kernels.adapted(step, 0, "qkv", product, x) - product(x)
    torch.testing.assert_close(delta[:2, :48], torch.full((2, 48), 47e-6 * 1e6 * 2), rtol=1e-3, atol=0)
    assert not delta[2:].any()
    assert not delta[:, 48:].any()


GROUP = "config_groups.group_0"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "method": (edited(TENSOR, "quant_method", "gptq"), "gptq"),
    "blocks": (edited(TENSOR, "weight_block_size", [128, 128]), "weight_block_size"),
    "scheme": (edited(TENSOR, "activation_scheme", "none"), "activation_scheme"),
    "other fp8": (edited(TENSOR, "fmt", "e5m2"), "e5m2"),
    "format": (edited(CHANNEL, "format", "pack-quantized"), "pack-quantized"),
    "status": (edited(CHANNEL, "quantization_status", "calibration"), "calibration"),
    "sparse": (edited(CHANNEL, "sparsity_config", {"format": "sparse-24-bitmask"}), "sparsity_config"),
    "unknown field": (edited(CHANNEL, "rotation", "hadamard"), "rotation"),
    "no groups": (edited(CHANNEL, "config_groups", {}), "config_groups"),
    "int8": (edited(CHANNEL, f"{GROUP}.weights.type", "int"), "group_0.weights"),
    "4 bits": (edited(CHANNEL, f"{GROUP}.weights.num_bits", 4), "group_0.weights"),
    "by block": (edited(CHANNEL, f"{GROUP}.weights.strategy", "block"), "'block'"),
    "block shape": (edited(CHANNEL, f"{GROUP}.weights.block_structure", [128, 128]), "block_structure"),
    "asymmetric": (edited(CHANNEL, f"{GROUP}.weights.symmetric", False), "group_0.weights"),
    "weights only": (edited(CHANNEL, f"{GROUP}.input_activations", None), "input_activations"),
    "group of inputs": (edited(CHANNEL, f"{GROUP}.input_activations.strategy", "group"), "'group'"),
    "outputs": (edited(CHANNEL, f"{GROUP}.output_activations", {"num_bits": 8}), "output_activations"),
    "a bad pattern": (edited(CHANNEL, "ignore", ["re:(("]), "no pattern"),
    "kv by token": (
        edited(CHANNEL, "kv_cache_scheme", {"num_bits": 8, "type": "float", "strategy": "token"}),
        "kv_cache_scheme",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_quantization_that_is_not_understood_is_refused_by_name(case: str, channel: Published) -> None:
    quantization, name = REFUSED[case]
    folder = channel.write(lambda config, _: config.update(quantization_config=quantization))
    with pytest.raises(ModelRefused, match="quantization_config") as caught:
        read_config(folder)
    assert name in str(caught.value)
    channel.write()


UP = "model.layers.1.mlp.up_proj"
MISFIT: dict[str, tuple[Edit, str]] = {
    "no scale": (lambda _, t: t.pop(f"{UP}.weight_scale"), f"{UP}.weight_scale is missing"),
    "scales by block": (
        lambda _, t: t.update({f"{UP}.weight_scale": torch.ones(2, 2)}),
        f"{UP}.weight_scale has shape",
    ),
    "a scale of zero": (lambda _, t: t[f"{UP}.weight_scale"].zero_(), "not a positive number"),
    "a scale that is left": (lambda _, t: t.update({"model.norm.weight_scale": torch.ones(1)}), "unexpected"),
    "not in fp8": (
        lambda _, t: t.update({f"{UP}.weight": t[f"{UP}.weight"].float()}),
        f"{UP}.weight is torch.float32",
    ),
    "ignored, yet in fp8": (
        lambda c, _: c["quantization_config"].update(ignore=["re:.*up_proj$"]),
        "up_proj.weight is torch.float8_e4m3fn",
    ),
    "no quantization_config": (lambda c, _: c.pop("quantization_config"), "does not quantize it"),
    "a norm in fp8": (
        lambda _, t: t.update({"model.norm.weight": t["model.norm.weight"].to(E4M3)}),
        "model.norm.weight is in FP8",
    ),
    "no kv scales, though told": (
        lambda c, _: c["quantization_config"].update(
            kv_cache_scheme={"num_bits": 8, "type": "float", "strategy": "tensor"}
        ),
        "0 scales of keys and values",
    ),
}


@pytest.mark.parametrize("case", MISFIT)
@pytest.mark.parametrize("published", ["channel"], indirect=True)
def test_tensors_that_disagree_with_the_configuration_are_refused(case: str, published: Published) -> None:
    edit, reason = MISFIT[case]
    published.tensors[f"{UP}.weight_scale"] = published.tensors[f"{UP}.weight_scale"].clone()
    kept = {name: tensor.clone() for name, tensor in published.tensors.items()}
    folder = published.write(edit)
    published.tensors = kept
    with pytest.raises(ModelRefused) as caught:
        load_weights(folder, read_config(folder))
    assert reason in str(caught.value)
