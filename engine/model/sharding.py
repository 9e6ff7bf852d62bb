"""What one process of a tensor-parallel group holds: its heads and its part of the MLP, of the base and of
every adapter (Shoeybi et al., "Megatron-LM", 2019, section 3; for LoRA Sheng et al., "S-LoRA", 2023, section
6).

q, k, v, gate and up are cut by output, o and down by input. So each process adds a part of every hidden state
behind o and down, and the parts are summed once each. An adapter's A is whole and its B cut by output for the
former; for the latter A is cut by input and B whole, and the adapter's part goes into the same sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig, ModelRefused

BY_INPUT = frozenset({"o_proj", "down_proj"})
BY_OUTPUT = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})


@dataclass(frozen=True, slots=True)
class Shard:
    rank: int
    count: int

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.count

    def part(self, tensor: Tensor, dim: int) -> Tensor:
        """This process's equal part, as a tensor of its own."""
        size = tensor.shape[dim] // self.count
        assert size * self.count == tensor.shape[dim], "cut in equal parts"
        return tensor.narrow(dim, self.rank * size, size).contiguous()


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """An adapter, or a process's part of one, as `engine.kernels.lora.HostAdapter`."""

    modules: Mapping[tuple[int, str], tuple[Tensor, Tensor, float]]


def check_shards(config: ModelConfig, count: int) -> None:
    """Raises `ModelRefused` where a model does not divide."""
    sizes = {
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "intermediate_size": config.intermediate_size,
    }
    odd = [f"{name} {size}" for name, size in sizes.items() if size % count]
    if odd:
        raise ModelRefused(f"tensor parallelism over {count} processes does not divide {', '.join(odd)}")


def shard_config(config: ModelConfig, shard: Shard) -> ModelConfig:
    """The configuration of one part. Its head is never tied, since it holds a part of the vocabulary and all
    embeddings."""
    check_shards(config, shard.count)
    return replace(
        config,
        num_heads=config.num_heads // shard.count,
        num_kv_heads=config.num_kv_heads // shard.count,
        intermediate_size=config.intermediate_size // shard.count,
        tied_embeddings=False,
    )


def shard_weights(weights: Mapping[str, Tensor], config: ModelConfig, shard: Shard) -> dict[str, Tensor]:
    """One process's part of the tensors that `weights.load_weights` gives (scales of FP8 included)."""
    cut = {name: _part(name, tensor, shard) for name, tensor in weights.items()}
    tied = config.tied_embeddings
    head = weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
    cut["lm_head.weight"] = _rows(head, shard)
    if not tied and (scale := weights.get("lm_head.weight_scale")) is not None:
        cut["lm_head.weight_scale"] = _rows(scale, shard)
    return cut


def shard_adapter(adapter: AdapterPart, shard: Shard) -> AdapterPart:
    return AdapterPart(
        {
            (layer, site): (
                (shard.part(a, 1), b, scale) if site in BY_INPUT else (a, shard.part(b, 0), scale)
            )
            for (layer, site), (a, b, scale) in adapter.modules.items()
        }
    )


def _part(name: str, tensor: Tensor, shard: Shard) -> Tensor:
    site, _, kind = name.removeprefix("model.").rpartition(".")
    site = site.rpartition(".")[2]
    if site in BY_OUTPUT and kind in {"weight", "bias", "weight_scale"}:
        return shard.part(tensor, 0)
    if site in BY_INPUT and kind == "weight":
        return shard.part(tensor, 1)
    if site in BY_INPUT and kind == "bias" and shard.rank > 0:
        return torch.zeros_like(tensor)  # it is added once
    return tensor


def _rows(head: Tensor, shard: Shard) -> Tensor:
    """A part of the vocabulary; the last is filled with zeros where it does not divide."""
    missing = -head.shape[0] % shard.count
    return shard.part(functional.pad(head.float(), (0, 0, 0, missing)).to(head.dtype), 0)
