"""The Llama family's forward pass as one C++ call a step (docs/decisions/0010), where the processor suits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.kernels.build import BuildFailed, built_library
from engine.kernels.lora import GROUPS
from engine.kernels.native import CLayer, CModel, CPacked, NativeLibrary
from engine.kernels.native_slots import AdapterPacker, Arena
from engine.kernels.native_step import NativeKernels, NativeStep
from engine.kernels.shapes import LANES, AttentionShape, LayerCache
from engine.model.config import ModelConfig
from engine.model.quantization import E4M3

_log = logging.getLogger(__name__)


def open_native(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
    block_size: int,
    max_model_len: int,
    num_threads: int,
) -> tuple[NativeModel, NativeKernels] | None:
    """None where `LlamaModel` serves: weights in FP8, a processor with AMX (oneDNN uses it), one
    without AVX-512 and its bfloat16 products, or no compiler."""
    if any(weight.dtype is E4M3 for weight in weights.values()):
        return None
    if dtype is torch.bfloat16 and _has_amx():
        return None
    try:
        library = NativeLibrary(built_library(), num_threads)
    except (BuildFailed, OSError):
        return None  # `open_kernels` says so
    if not library.serves(dtype):
        return None
    model = NativeModel(
        config, weights, library, dtype=dtype, block_size=block_size, max_model_len=max_model_len
    )
    return model, NativeKernels(AdapterPacker(library, dtype, config.num_layers, config.sites))


def _has_amx() -> bool:
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


class NativeModel:
    """`LlamaModel`'s twin in C++: the same `forward` and `logits`, over weights packed when it is made."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        library: NativeLibrary,
        *,
        dtype: torch.dtype,
        block_size: int,
        max_model_len: int,
    ) -> None:
        self.config = config
        self.attention = AttentionShape(
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            block_size,
            config.head_dim**-0.5,
            config.norm_eps,
        )
        self._library = library
        self._dtype = dtype
        packing = _Packing(library, config, weights, dtype)
        self._layers = (CLayer * config.num_layers)(*map(packing.layer, range(config.num_layers)))
        self._bound: Sequence[LayerCache] | None = None
        self._c = CModel(
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            vocab=config.vocab_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=block_size,
            num_layers=config.num_layers,
            attention_scale=self.attention.scale,
            norm_eps=config.norm_eps,
            embedding=packing.embedding(),
            cos_sin=packing.keep(config.rope.table(max_model_len)),
            final_norm=packing.floats("model.norm.weight"),
            head=packing.head(),
            layers=self._layers,
        )
        self._memory = packing.arena, packing.kept  # what the structs point to
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def forward(self, step: NativeStep, caches: Sequence[LayerCache]) -> Tensor:
        """The residual stream after the last layer, float32 [num_tokens, hidden]."""
        self._bind(caches)
        residual = torch.empty(step.num_tokens, self.config.hidden_size)
        step.c.residual = residual.data_ptr()
        step.c.scratch = self._scratch_for(step.num_tokens, step.c.max_rank)
        self._library.step(self._dtype, caches[0].keys.dtype, self._c, step.c)
        return residual

    def logits(self, residual: Tensor) -> Tensor:
        """float32 [rows, vocab] of rows of the residual stream."""
        logits = torch.empty(residual.shape[0], self.config.vocab_size)
        scratch = self._scratch_for(residual.shape[0], 0)
        self._library.head(self._dtype, self._c, residual, logits, scratch)
        return logits

    def _bind(self, caches: Sequence[LayerCache]) -> None:
        if self._bound is caches:
            return
        for layer, cache in zip(self._layers, caches, strict=True):
            assert cache.keys.is_contiguous()
            assert cache.values.is_contiguous()
            layer.keys, layer.values = cache.keys.data_ptr(), cache.values.data_ptr()
            layer.key_scale, layer.value_scale = cache.key_scale, cache.value_scale
        self._bound = caches

    def _scratch_for(self, rows: int, max_rank: int) -> int:
        """The address of enough memory. It grows to the largest step that was met."""
        needed = self._library.scratch_bytes(self._c, rows, max_rank) + 64
        if self._scratch.numel() < needed:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        return -(-self._scratch.data_ptr() // 64) * 64


class _Packing:
    """Packs weights into one arena, and keeps what else the structs point to."""

    def __init__(
        self,
        library: NativeLibrary,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
    ) -> None:
        self._library, self._config, self._weights, self._dtype = library, config, weights, dtype
        self.kept: list[Tensor] = []
        sites = sum(library.packed_bytes(dtype, out, into) for into, out in config.sites.values())
        head = library.packed_bytes(dtype, config.vocab_size, config.hidden_size)
        self.arena = Arena(config.num_layers * sites + head)

    def keep(self, tensor: Tensor) -> int:
        """Its address, valid as long as `kept`."""
        tensor = tensor.contiguous()
        self.kept.append(tensor)
        return tensor.data_ptr()

    def floats(self, name: str) -> int | None:
        """A vector in float32, in whole lanes. None if the model has none."""
        vector = self._weights.get(name)
        return None if vector is None else self.keep(_lanes(self._cast(vector).float()))

    def layer(self, index: int) -> CLayer:
        prefix = f"model.layers.{index}."
        packed = {group: self._fused(prefix, group, sites) for group, sites in GROUPS.items()}
        return CLayer(
            attention_norm=self.floats(prefix + "input_layernorm.weight"),
            mlp_norm=self.floats(prefix + "post_attention_layernorm.weight"),
            query_norm=self.floats(prefix + "self_attn.q_norm.weight"),
            key_norm=self.floats(prefix + "self_attn.k_norm.weight"),
            **packed,
        )

    def head(self) -> CPacked:
        name = "model.embed_tokens" if self._config.tied_embeddings else "lm_head"
        return self._packed([self._weights[f"{name}.weight"]], [None], every=1)

    def embedding(self) -> int | None:
        """None where the head's blocks serve as it: it would be a second copy."""
        if self._config.tied_embeddings:
            return None
        return self.keep(self._cast(self._weights["model.embed_tokens.weight"]))

    def _fused(self, prefix: str, group: str, sites: tuple[str, ...]) -> CPacked:
        part = "self_attn." if group in {"qkv", "o"} else "mlp."
        names = [prefix + part + site for site in sites]
        weights = [self._weights[f"{name}.weight"] for name in names]
        biases = [self._weights.get(f"{name}.bias") for name in names]
        return self._packed(weights, biases, every=2 if group == "gate_up" else 1)

    def _packed(self, weights: list[Tensor], biases: Sequence[Tensor | None], every: int) -> CPacked:
        """Of layers with one input: one after the other, or (every 2) a block of each in turn."""
        inputs = weights[0].shape[1]
        sizes = [self._library.packed_bytes(self._dtype, len(weight), inputs) for weight in weights]
        start = self.arena.take(sum(sizes))
        blocks = [-(-len(weight) // LANES) for weight in weights]
        block_bytes = sizes[0] // blocks[0]
        at = start
        for weight, size in zip(weights, sizes, strict=True):
            self._library.pack(self._cast(weight).contiguous(), at, every)
            at += size if every == 1 else block_bytes
        bias = None
        if any(each is not None for each in biases):
            lanes = [
                torch.zeros(count * LANES) if each is None else _lanes(self._cast(each).float())
                for each, count in zip(biases, blocks, strict=True)
            ]
            bias = self.keep(
                torch.stack([each.view(-1, LANES) for each in lanes], 1) if every == 2 else torch.cat(lanes)
            )
        return CPacked(start, bias, block_bytes // (4 * LANES), sum(blocks))

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._dtype)


def _lanes(vector: Tensor) -> Tensor:
    """float32, with zeros to whole lanes."""
    return torch.nn.functional.pad(vector, (0, -len(vector) % LANES))
