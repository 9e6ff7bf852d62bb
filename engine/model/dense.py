"""The model the obvious way: dense float32 products with `W + s·BA`, layer by layer off the checkpoint.

The slow twin of everything that serves: no cache, no fused kernel, no slot, no shared forward pass. What is
served is rounded to the serving dtype; here only the weights are, and quantized as they are served, so that
what is left between the two is what their arithmetic rounds. Memory: one layer in float32, since the
checkpoint is mapped and not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig, read_config
from engine.model.quantization import E4M3, quantize_rows
from engine.model.weights import load_weights

SHAKE: Final = 2.0**-8
"""Bfloat16's rounding, about."""
HEAD_ROWS: Final = 8_192  # of the head that are in float32 at a time

Factors = tuple[Tensor, Tensor, float]
Modules = Mapping[tuple[int, str], Factors]
"""(A [rank, in], B [out, rank], scale) by (layer, site), as `adapters.loader` reads them."""


@dataclass(frozen=True)
class DenseModel:
    config: ModelConfig
    weights: Mapping[str, Tensor]  # mapped files
    dtype: torch.dtype  # that the replica serves in
    quantizes: bool  # the replica turns linear weights into FP8 when it loads them

    @classmethod
    def open(cls, model_dir: Path, dtype: torch.dtype, quantization: str) -> DenseModel:
        """Raises `ModelRefused`, as the replica would."""
        config = read_config(model_dir)
        return cls(config, load_weights(model_dir, config), dtype, quantization == "fp8")

    def logprobs(self, prompts: Sequence[Sequence[int]], modules: Modules, *, shaken: bool = False) -> Tensor:
        """Of the next token after each token of each prompt: float32 [tokens of all prompts, vocab].

        `shaken`: each product's outputs are moved up or down by `SHAKE` of themselves, the same way each
        time: how far the answers move then tells how far rounding may move them.
        """
        shake = torch.Generator().manual_seed(1) if shaken else None
        with torch.inference_mode():
            tokens = torch.tensor([token for prompt in prompts for token in prompt])
            residual = self.weights["model.embed_tokens.weight"][tokens].to(self.dtype).float()
            lengths = [len(prompt) for prompt in prompts]
            for layer in range(self.config.num_layers):
                residual = self._layer(residual, lengths, layer, modules, shake)
            return self._head(self._norm(residual, "model.norm")).log_softmax(1)

    def _layer(
        self,
        residual: Tensor,
        lengths: list[int],
        layer: int,
        modules: Modules,
        shake: torch.Generator | None,
    ) -> Tensor:
        prefix = f"model.layers.{layer}."

        def linear(site: str, x: Tensor) -> Tensor:
            weight, bias = self.linear(layer, site)
            if (factors := modules.get((layer, site))) is not None:
                a, b, scale = factors
                weight = weight + scale * (b.float() @ a.float())
            product = functional.linear(x, weight, bias)
            return product if shake is None else _shaken(product, shake)

        x = self._norm(residual, f"{prefix}input_layernorm")
        q, k, v = (linear(site, x) for site in ("q_proj", "k_proj", "v_proj"))
        residual = residual + linear("o_proj", self._attend(prefix, lengths, q, k, v))
        x = self._norm(residual, f"{prefix}post_attention_layernorm")
        return residual + linear("down_proj", functional.silu(linear("gate_proj", x)) * linear("up_proj", x))

    def _attend(self, prefix: str, lengths: list[int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        size = self.config.head_dim
        heads = [part.view(part.shape[0], -1, size) for part in (q, k, v)]
        if self.config.head_norms:
            heads[0] = self._norm(heads[0], f"{prefix}self_attn.q_norm")
            heads[1] = self._norm(heads[1], f"{prefix}self_attn.k_norm")
        attended = [
            self._attend_one(*parts) for parts in zip(*(torch.split(h, lengths) for h in heads), strict=True)
        ]
        return torch.cat(attended).flatten(1)

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[length, heads, head_dim] of one prompt, each position on itself and those before."""
        length = q.shape[0]
        cos, sin = self.config.rope.table(length).float().unsqueeze(1).chunk(2, dim=2)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        group = self.config.num_heads // self.config.num_kv_heads
        k, v = (part.repeat_interleave(group, 1) for part in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.config.head_dim)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        return torch.einsum("hij,jhd->ihd", scores.masked_fill(later, -torch.inf).softmax(2), v)

    def _head(self, x: Tensor) -> Tensor:
        name = "model.embed_tokens" if self.config.tied_embeddings else "lm_head"
        weight, scale = self.weights[f"{name}.weight"], self.weights.get(f"{name}.weight_scale")
        parts = []
        for start in range(0, weight.shape[0], HEAD_ROWS):
            rows = weight[start : start + HEAD_ROWS]
            known = None if scale is None else scale[start : start + HEAD_ROWS]
            parts.append(x @ _dequantized(rows, known, self.dtype).t())
        return torch.cat(parts, dim=1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"].to(self.dtype).float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.norm_eps) * weight

    def linear(self, layer: int, site: str) -> tuple[Tensor, Tensor | None]:
        """Weight [out, in] and bias of a site as they are served, in float32."""
        part = "mlp" if site in {"gate_proj", "up_proj", "down_proj"} else "self_attn"
        name = f"model.layers.{layer}.{part}.{site}"
        weight, scale = self.weights[f"{name}.weight"], self.weights.get(f"{name}.weight_scale")
        bias = self.weights.get(f"{name}.bias")
        if self.quantizes and weight.dtype is not E4M3:
            weight, scale = quantize_rows(weight)
        return (
            _dequantized(weight, scale, self.dtype),
            None if bias is None else bias.to(self.dtype).float(),
        )


def _shaken(x: Tensor, shake: torch.Generator) -> Tensor:
    up = torch.randint(0, 2, x.shape, generator=shake, dtype=torch.int8)
    return x * (1 + SHAKE * (2.0 * up - 1.0))


def _dequantized(weight: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    return weight.to(dtype).float() if scale is None else weight.float() * scale


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=2)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=2)
