"""What a good upload says of itself, from Motet's own reading and from PEFT's."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.base import SITES, BaseSpec, module_name
from adapters.manifest import read_manifest
from tests.adapters.uploads import TINY, Upload, upload

DEMO = Path(__file__).resolve().parents[2] / "deploy" / "local" / "demo"
DEMO_BASE = BaseSpec(
    name="smollm2-135m-instruct",
    architecture="LlamaForCausalLM",
    num_layers=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    max_model_len=8192,
    eos_ids=(2,),
    tokenizer_digest="1" * 64,
    longest_token_bytes=81,
)


@pytest.mark.parametrize(
    ("name", "targets", "ranks_and_scales"),
    [
        ("pirate", ("q_proj", "v_proj"), {(8, 2.0)}),
        ("sentiment-json", SITES, {(4, 2.0)}),
        ("shout", ("o_proj", "down_proj"), {(4, 4 / math.sqrt(4))}),
        ("triage", ("gate_proj", "up_proj", "down_proj"), {(8, 2.0), (2, 4.0)}),
    ],
)
def test_the_demo_adapters(
    name: str, targets: tuple[str, ...], ranks_and_scales: set[tuple[int, float]]
) -> None:
    folder = DEMO / name
    manifest = read_manifest(
        (folder / "adapter_config.json").read_bytes(), folder / "adapter_model.safetensors", DEMO_BASE
    )
    assert manifest.targets == targets
    assert len(manifest.modules) == 30 * len(targets)
    assert {(module.rank, module.scale) for module in manifest.modules} == ranks_and_scales
    assert manifest.max_rank == max(rank for rank, _ in ranks_and_scales)


def test_triage_has_its_own_rank_and_scale_in_the_first_ten_layers() -> None:
    folder = DEMO / "triage"
    manifest = read_manifest(
        (folder / "adapter_config.json").read_bytes(), folder / "adapter_model.safetensors", DEMO_BASE
    )
    for module in manifest.modules:
        special = module.site == "up_proj" and module.layer < 10
        assert (module.rank, module.scale) == ((2, 4.0) if special else (8, 2.0))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    manifest = upload(dtype=dtype).manifest(tmp_path)
    assert {tensor.dtype for module in manifest.modules for tensor in (module.lora_a, module.lora_b)} == {
        dtype
    }


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": "all-linear"},
        {"target_modules": r".*\.(q|v)_proj"},
        {"target_modules": r"model\.layers\.\d+\.self_attn\.(?:q_proj|v_proj)"},
        {"layers_to_transform": [0, 1, 2]},
        {"layers_to_transform": [0, 1, 2], "layers_pattern": "layers"},
        {"exclude_modules": ["o_proj", "lm_head"]},
        {"exclude_modules": r".*\.mlp\..*"},
        {"task_type": None},
        {"init_lora_weights": "gaussian"},
        {"lora_dropout": 0.1, "use_dora": False, "modules_to_save": None, "loftq_config": {}},
        {"a_field_of_tomorrow": None},
        {"runtime_config": {"ephemeral_gpu_offload": False}},
    ],
)
def test_configs_that_mean_the_same(tmp_path: Path, config: dict[str, Any]) -> None:
    plain = upload()
    if config.get("target_modules") == "all-linear":
        plain = upload({(layer, site): 4 for layer in range(3) for site in SITES})
    expected = plain.manifest(tmp_path / "plain")
    plain.config.update(config)
    assert plain.manifest(tmp_path / "other") == expected


def test_some_layers_only(tmp_path: Path) -> None:
    manifest = upload({(1, "q_proj"): 3}, layers_to_transform=1).manifest(tmp_path)
    assert [(module.layer, module.site, module.rank) for module in manifest.modules] == [(1, "q_proj", 3)]


def test_names_with_the_adapter_called_default(tmp_path: Path) -> None:
    good = upload()
    expected = good.manifest(tmp_path / "plain")
    good.tensors = {name.replace(".weight", ".default.weight"): blob for name, blob in good.tensors.items()}
    named = good.manifest(tmp_path / "named")
    assert [(m.layer, m.site, m.rank, m.scale) for m in named.modules] == [
        (m.layer, m.site, m.rank, m.scale) for m in expected.modules
    ]


def test_modules_stand_in_layer_and_site_order_whatever_the_file_says(tmp_path: Path) -> None:
    good = upload({(layer, site): 2 for layer in (2, 0, 1) for site in reversed(SITES)})
    manifest = good.manifest(tmp_path)
    places = [(module.layer, module.site) for module in manifest.modules]
    assert places == [(layer, site) for layer in range(3) for site in SITES]


def test_the_first_matching_pattern_wins(tmp_path: Path) -> None:
    good = upload({(0, "q_proj"): 4, (1, "q_proj"): 4})
    good.config["alpha_pattern"] = {"layers.0.self_attn.q_proj": 40, "q_proj": 20}
    assert [module.scale for module in good.manifest(tmp_path).modules] == [10.0, 5.0]


PATTERNS = st.sampled_from(
    [
        "q_proj",
        r"layers\.[01]\.self_attn\.v_proj",
        "model.layers.1.mlp.up_proj",
        r".*\.mlp\.(up|down)_proj",
        r"layers\.\d+\.self_attn\.[qk]_proj",
        r"^model\.layers\.2\..*",
        r"(self_attn|mlp)\.(o_proj|gate_proj)",
        r"\w+_proj",
        r"layers\.(?:0|2)\.mlp\.\w{7,9}",
        "no_such_module",
    ]
)


@pytest.fixture(scope="module")
def peft_model() -> Any:
    """A model of the tiny base's shape, in torch, without weights that matter."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
    )
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config)


@pytest.mark.filterwarnings("ignore:The following .*_pattern keys did not match")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ranks=st.dictionaries(PATTERNS, st.integers(1, 9), max_size=4),
    alphas=st.dictionaries(PATTERNS, st.integers(1, 64), max_size=4),
    rslora=st.booleans(),
    layers=st.one_of(st.none(), st.sets(st.integers(0, 2), min_size=1).map(sorted)),
    sites=st.sets(st.sampled_from(SITES), min_size=1).map(sorted),
)
def test_ranks_and_scales_are_pefts(
    tmp_path_factory: pytest.TempPathFactory,
    peft_model: Any,
    ranks: dict[str, int],
    alphas: dict[str, int],
    rslora: bool,
    layers: list[int] | None,
    sites: list[str],
) -> None:
    """PEFT builds the modules from the config; what it built is uploaded with the same config."""
    import peft

    options: dict[str, Any] = {
        "r": 5,
        "lora_alpha": 12,
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "use_rslora": rslora,
        "layers_to_transform": layers,
        "target_modules": sites,
    }
    model = peft.inject_adapter_in_model(peft.LoraConfig(**options), copy.deepcopy(peft_model))
    built = {
        (int(name.split(".")[2]), name.split(".")[-1]): (module.r["default"], module.scaling["default"])
        for name, module in model.named_modules()
        if hasattr(module, "lora_A")
    }
    good: Upload = upload({place: rank for place, (rank, _) in built.items()})
    good.config = {"peft_type": "LORA", **options}
    manifest = good.manifest(tmp_path_factory.mktemp("upload"))
    assert {(m.layer, m.site): (m.rank, m.scale) for m in manifest.modules} == built


def test_module_names_are_pefts(peft_model: Any) -> None:
    linears = {name for name, _ in peft_model.named_modules() if name.endswith("_proj")}
    assert linears == {module_name(layer, site) for layer in range(3) for site in SITES}


def test_the_tiny_base_reads_back_from_json(tmp_path: Path) -> None:
    good = upload()
    assert json.loads(good.config_bytes())["r"] == 4
    assert good.manifest(tmp_path, TINY).num_parameters == 3 * (4 * (16 + 16) + 4 * (16 + 8))
