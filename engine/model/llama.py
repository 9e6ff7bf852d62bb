"""The Llama family's forward pass over the rows of a step, flattened to [num_tokens, hidden].

The residual stream is float32; everything else is in the model's dtype, with float32 sums inside kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from engine.kernels.lora import GROUPS
from engine.kernels.shapes import AttentionShape, HeadNorms, Kernels, LayerCache, M, StepMeta
from engine.model.config import ModelConfig
from engine.model.linear import Linear, Quantize, fused_linear, new_linear
from engine.model.placed_weights import PlacedWeights
from engine.model.quantization import quantize_rows

CPU = torch.device("cpu")


class PartGroup(Protocol):
    """The tensor-parallel group that computes the model together (`engine.model.group.Group`)."""

    def sum(self, partial: Tensor) -> Tensor:
        """The sum of all processes' [rows, hidden], in place or not."""
        ...

    def join(self, columns: Tensor) -> Tensor:
        """All processes' [rows, part of the vocabulary] beside each other."""
        ...


M_contra = TypeVar("M_contra", bound=StepMeta, contravariant=True)


class StepModel(Protocol[M_contra]):
    """A model over the steps of one backend."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def attention(self) -> AttentionShape: ...

    def forward(self, step: M_contra, caches: Sequence[LayerCache]) -> Tensor:
        """The residual stream after the last layer, float32 [num_rows, hidden]."""
        ...

    def logits(self, residual: Tensor) -> Tensor:
        """float32 [rows, vocab] of rows of the residual stream."""
        ...


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    mlp_norm: Tensor
    head_norms: HeadNorms | None
    linears: Mapping[str, Linear]  # by fused group


class LlamaModel(Generic[M]):
    def __init__(  # noqa: PLR0913 - what a model is made of; the last three have defaults
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        kernels: Kernels[M],
        *,
        dtype: torch.dtype,
        block_size: int,
        max_model_len: int,
        group: PartGroup | None = None,
        device: torch.device = CPU,
        quantize: Quantize = quantize_rows,
    ) -> None:
        """`quantize`: how a linear in FP8 on a GPU has its input turned into codes. `group`: None in a
        single process; else `config` and `weights` are those of one part (`engine.model.sharding`)."""
        self.config = config
        self.attention = AttentionShape(
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            block_size,
            config.head_dim**-0.5,
            config.norm_eps,
        )
        self._kernels = kernels
        self._group = group
        self._cos_sin = config.rope.table(max_model_len).to(device)
        cast = PlacedWeights(weights, dtype, device)
        self._embedding = cast["model.embed_tokens.weight"]
        self._final_norm = cast["model.norm.weight"]
        self._layers = [_layer(config, cast, i, dtype, quantize) for i in range(config.num_layers)]
        tied = config.tied_embeddings
        self._head = new_linear(self._embedding) if tied else fused_linear(cast, ["lm_head"], dtype, quantize)

    def forward(self, step: M, caches: Sequence[LayerCache]) -> Tensor:
        """The residual stream after the last layer, float32 [num_rows, hidden]."""
        kernels, shape, eps = self._kernels, self.attention, self.config.norm_eps
        residual = self._embedding[step.tokens].float()
        delta: Tensor | None = None
        for index, (layer, cache) in enumerate(zip(self._layers, caches, strict=True)):
            linears = layer.linears
            x = kernels.add_norm(residual, delta, layer.attention_norm, eps)
            qkv = kernels.adapted(step, index, "qkv", linears["qkv"], x)
            q = kernels.rotate_and_store(shape, step, qkv, layer.head_norms, self._cos_sin, cache)
            attended = kernels.attend(shape, step, q, cache)
            delta = self._reduced(kernels.adapted(step, index, "o", linears["o"], attended))
            x = kernels.add_norm(residual, delta, layer.mlp_norm, eps)
            inner = kernels.silu_mul(kernels.adapted(step, index, "gate_up", linears["gate_up"], x))
            delta = self._reduced(kernels.adapted(step, index, "down", linears["down"], inner))
        assert delta is not None
        residual += delta
        return residual

    def logits(self, residual: Tensor) -> Tensor:
        """float32 [rows, vocab] of rows of the residual stream."""
        normed = self._kernels.add_norm(residual, None, self._final_norm, self.config.norm_eps)
        logits = self._head(normed)
        if self._group is not None:
            logits = self._group.join(logits)[:, : self.config.vocab_size].contiguous()
        return logits.float()

    def _reduced(self, partial: Tensor) -> Tensor:
        return partial if self._group is None else self._group.sum(partial)


def _layer(
    config: ModelConfig, weights: Mapping[str, Tensor], index: int, dtype: torch.dtype, quantize: Quantize
) -> _Layer:
    norms, prefix = None, f"model.layers.{index}."
    if config.head_norms:
        norms = HeadNorms(
            weights[prefix + "self_attn.q_norm.weight"], weights[prefix + "self_attn.k_norm.weight"]
        )
    return _Layer(
        weights[prefix + "input_layernorm.weight"],
        weights[prefix + "post_attention_layernorm.weight"],
        norms,
        {
            group: fused_linear(weights, _modules(prefix, sites), dtype, quantize)
            for group, sites in GROUPS.items()
        },
    )


def _modules(prefix: str, sites: tuple[str, ...]) -> list[str]:
    return [
        prefix + ("mlp." if site.startswith(("gate", "up", "down")) else "self_attn.") + site
        for site in sites
    ]
