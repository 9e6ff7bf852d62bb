"""A model of a known shape with random FP8 weights, made on the device: no file is needed to measure a
step."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.config import ModelConfig, parse_config
from engine.model.weights import expected_shapes

SPREAD = 64.0  # of codes, whose largest is 448


def llama_8b(num_layers: int = 32) -> ModelConfig:
    """The shape of Llama 3.1 8B."""
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    return parse_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": num_layers,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "rope_scaling": rope,
            "eos_token_id": 128001,
        }
    )


def random_fp8_weights(config: ModelConfig, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """For `GpuRunner`: linears of all layers in FP8 with a scale an output, such that each keeps the size of
    what it reads; norms are ones, embedding and head bfloat16. Biases are not made."""
    generator = torch.Generator(device).manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape, dtype=torch.bfloat16, device=device)
            continue
        numbers = torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=device)
        if ".layers." not in name:
            weights[name] = numbers.mul_(shape[1] ** -0.5)
            continue
        weights[name] = numbers.mul_(SPREAD).to(torch.float8_e4m3fn)
        scale = 1.0 / (SPREAD * shape[1] ** 0.5)
        weights[f"{name.removesuffix('.weight')}.weight_scale"] = torch.full(
            (shape[0], 1), scale, dtype=torch.float32, device=device
        )
    return weights
