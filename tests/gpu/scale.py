"""How large the checks and measurements are: on a GPU those of Llama 3.1 8B, in a dry run so small that
Triton's interpreter gets through."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from adapters.peft_config import MAX_RANK
from engine.kernels.adapter_arena import ArenaLayout
from engine.kernels.lora import KernelAdapter, prepare
from engine.model.config import ModelConfig
from tests.gpu.random_model import llama_8b


@dataclass(frozen=True)
class Scale:
    device: torch.device
    config: ModelConfig
    batches: tuple[int, ...]  # sequences that decode in one step
    distinct: tuple[int, ...]  # adapters in one step
    prompts: tuple[int, ...]  # tokens of a prefill step
    context: int  # tokens before each that is decoded
    warm_ups: int  # steps before those that are measured
    steps: int  # measured, of each kind
    max_rank: int  # that the arena is laid out for
    copied_bytes: int  # to find the memory's bandwidth
    rank: int = 16

    @property
    def is_dry(self) -> bool:
        return self.device.type == "cpu"

    @property
    def layout(self) -> ArenaLayout:
        return ArenaLayout(self.config.num_layers, self.config.sites, self.max_rank)

    def adapter(self) -> KernelAdapter:
        """All sites of all layers at `rank`, in host memory. Each layer holds the same numbers, in a place of
        its own once it is packed."""
        draw = torch.Generator().manual_seed(1)
        drawn = {
            site: (
                torch.randn(self.rank, inputs, generator=draw).mul_(inputs**-0.5).bfloat16(),
                torch.randn(outputs, self.rank, generator=draw).mul_(0.1 * self.rank**-0.5).bfloat16(),
                1.0,
            )
            for site, (inputs, outputs) in self.config.sites.items()
        }
        layers = range(self.config.num_layers)
        return prepare(_Drawn({(layer, site): drawn[site] for layer in layers for site in drawn}))


@dataclass(frozen=True)
class _Drawn:
    modules: dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]]


def full() -> Scale:
    return Scale(
        device=torch.device("cuda", 0),
        config=llama_8b(),
        batches=(1, 8, 32, 128),
        distinct=(1, 8, 32),
        prompts=(512, 2048),
        context=1024,
        warm_ups=5,
        steps=30,
        max_rank=MAX_RANK,
        copied_bytes=1 << 31,
    )


def dry() -> Scale:
    large = llama_8b(num_layers=1)
    config = replace(
        large,
        hidden_size=64,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=64,
        rope=replace(large.rope, head_dim=16),
    )
    return Scale(
        device=torch.device("cpu"),
        config=config,
        batches=(1, 2),
        distinct=(1, 2),
        prompts=(),
        context=3,
        warm_ups=1,
        steps=1,
        max_rank=16,
        copied_bytes=1 << 16,
    )
