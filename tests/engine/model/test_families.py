"""Tiny random models of each family, made by transformers: our logits equal its logits in fp32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.core.plan import BASE_SLOT, Row
from engine.kernels.reference import ReferenceKernels
from engine.model.config import ModelRefused, parse_config, read_config
from engine.model.runner import ModelRunner, RunnerOptions
from engine.model.weights import load_weights

SMALL = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied-biased": (
        "Llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 10},
    ),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "linear-rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "yarn-rope": ("Llama", {"rope_parameters": YARN, "head_dim": 32}),
    "mistral": ("Mistral", {"head_dim": 16, "sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-yarn": ("Qwen3", {"head_dim": 32, "rope_parameters": {**YARN, "attention_factor": 1.2}}),
}


def make(family: str, folder: Path) -> Any:
    """A model with random weights, biases and norms too, saved in several shards."""
    kind, changes = FAMILIES[family]
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.uniform_(parameter, 0.2, 1.8)
    model.save_pretrained(folder, max_shard_size="40KB")
    return model


def logits_of(runner: ModelRunner, tokens: list[int]) -> torch.Tensor:
    """Logits of every position, in two chunks."""
    model, out = runner._model, []
    table = list(range(1, runner.num_blocks))
    with torch.inference_mode():
        for start, end in ((0, 33), (33, len(tokens))):
            row = Row(0, tokens[start:end], start, table, BASE_SLOT)
            step = runner._kernels.plan(model.attention, [row], runner._slots)
            out.append(model.logits(model.forward(step, runner._caches)[: end - start]))
    return torch.cat(out)


@pytest.mark.parametrize("family", FAMILIES)
def test_fp32_logits_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = make(family, tmp_path)
    tokens = torch.randint(3, 97, (120,), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        wanted = theirs(tokens.unsqueeze(0)).logits[0]
    options = RunnerOptions("float32", 200, num_blocks=16, num_slots=1, num_threads=1)
    for kernels in (None, ReferenceKernels()):
        ours = logits_of(ModelRunner(tmp_path, options, kernels), tokens.tolist())
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    assert runner_facts(tmp_path) == (97, (2,), BASE_SLOT)


def runner_facts(folder: Path) -> tuple[int, tuple[int, ...], int]:
    config = read_config(folder)
    return config.vocab_size, config.eos_token_ids, BASE_SLOT


def test_the_digest_moves_with_weights_dtype_and_configuration(tmp_path: Path) -> None:
    model = make("llama", tmp_path)
    options = RunnerOptions("float32", 64, num_blocks=2, num_slots=1, num_threads=1)
    first = ModelRunner(tmp_path, options).base_digest
    assert first == ModelRunner(tmp_path, options).base_digest
    assert first != ModelRunner(tmp_path, RunnerOptions("bfloat16", 64, 2, num_threads=1)).base_digest
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 1e-3
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert first != ModelRunner(tmp_path, options).base_digest


BASIC: dict[str, Any] = {**SMALL, "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
    "unknown field": ({"qk_clip": 3.0}, "qk_clip"),
    "quantized": ({"quantization_config": {"bits": 4}}, "quantization_config"),
    "activation": ({"hidden_act": "gelu"}, "gelu"),
    "dynamic rope": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
    "longrope": ({"rope_parameters": {"rope_type": "longrope"}}, "longrope"),
    "rope field": ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "spin": 1}}, "spin"),
    "rope twice": (
        {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_parameters and rope_scaling",
    ),
    "rope without factor": ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
    "rope by layer": ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "layer type"),
    "partial rotation": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "chunked layers": ({"layer_types": ["chunked_attention"]}, "chunked_attention"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers"),
    "heads": ({"num_key_value_heads": 3}, "num_key_value_heads"),
    "end token": ({"eos_token_id": [2, 97]}, "eos_token_id"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_honoured_is_refused_by_name(case: str) -> None:
    changes, name = REFUSED[case]
    with pytest.raises(ModelRefused, match=name):
        parse_config({**BASIC, **changes})


def test_old_and_new_spellings_of_rope_agree() -> None:
    plain = {name: value for name, value in LLAMA3.items() if name != "rope_theta"}
    old = parse_config({**BASIC, "rope_theta": 500.0, "rope_scaling": plain})
    new = parse_config({**BASIC, "rope_parameters": LLAMA3})
    assert torch.equal(old.rope.table(64), new.rope.table(64))
    both = parse_config({**BASIC, "rope_theta": 500.0, "rope_scaling": plain, "rope_parameters": LLAMA3})
    assert both.rope == new.rope


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 100}, 100),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100, "use_sliding_window": False}, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100, "use_sliding_window": True}, 100),
        ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}, 4096),
        ({"architectures": ["Qwen3ForCausalLM"]}, None),
        ({"architectures": ["MistralForCausalLM"]}, 4096),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, None),
        (
            {
                "architectures": ["MistralForCausalLM"],
                "sliding_window": 100,
                "layer_types": ["full_attention"] * 2,
            },
            100,
        ),
        ({"sliding_window": 100, "layer_types": ["full_attention"] * 2}, None),
        ({}, None),
    ],
)
def test_a_sliding_window_is_refused_where_it_bites(changes: Mapping[str, Any], window: int | None) -> None:
    config = parse_config({**BASIC, **changes})
    assert config.sliding_window == window
    config.check_context(100)
    if window is None:
        config.check_context(256)
    else:
        with pytest.raises(ModelRefused, match="sliding_window"):
            config.check_context(window + 1)


def test_every_tensor_is_accounted_for(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make("llama", tmp_path)
    tensors = {k: v for path in tmp_path.glob("model-*.safetensors") for k, v in load_file(path).items()}
    for path in tmp_path.glob("model*"):
        path.unlink()
    config, file = read_config(tmp_path), tmp_path / "model.safetensors"

    def refusal(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, file)
        with pytest.raises(ModelRefused) as caught:
            load_weights(tmp_path, config)
        return str(caught.value)

    norm = "model.norm.weight"
    assert norm in refusal({k: v for k, v in tensors.items() if k != norm})
    assert "model.extra" in refusal({**tensors, "model.extra": torch.zeros(1)})
    assert norm in refusal({**tensors, norm: torch.zeros(3)})
    assert norm in refusal({**tensors, norm: torch.zeros(48, dtype=torch.int64)})
    save_file({**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(6)}, file)
    assert set(load_weights(tmp_path, config)) == set(tensors)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelRefused, match="safetensors"):
        load_weights(tmp_path, config)
    index = {"weight_map": {norm: "../outside.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelRefused, match="outside"):
        load_weights(tmp_path, config)
