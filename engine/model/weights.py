"""Weights from safetensors, sharded or not. Every tensor is accounted for, by name and shape."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.config import ModelConfig, ModelRefused
from engine.model.quantization import E4M3, settle_scales

_FLOATS = {torch.bfloat16, torch.float16, torch.float32, E4M3}
_DERIVED = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
"""A buffer that old checkpoints carry; it is computed from the configuration."""


def load_weights(model_dir: Path, config: ModelConfig) -> dict[str, Tensor]:
    """All tensors as stored, and the scales of those in FP8 in one form (`settle_scales`). Raises
    `ModelRefused` for missing, unexpected and misshapen ones."""
    expected = expected_shapes(config)
    found: dict[str, Tensor] = {}
    for path, names in _files(model_dir):
        for name, tensor in _tensors(path, names):
            if name in found:
                raise ModelRefused(f"tensor {name} is stored twice")
            found[name] = tensor
    if config.tied_embeddings and "lm_head.weight" in found:
        _check_tied(found)
    expected |= settle_scales(config, found)
    unexpected = [name for name in found if name not in expected and not _DERIVED.fullmatch(name)]
    missing = [name for name in expected if name not in found]
    if missing:
        raise ModelRefused(f"{len(missing)} tensors are missing: {_some(missing)}")
    if unexpected:
        raise ModelRefused(f"{len(unexpected)} tensors are unexpected: {_some(unexpected)}")
    for name, shape in expected.items():
        if tuple(found[name].shape) != shape:
            raise ModelRefused(f"tensor {name} has shape {list(found[name].shape)}, not {list(shape)}")
    return {name: found[name] for name in expected}


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer_shapes(config).items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def base_digest(
    config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype, cache: str = ""
) -> str:
    """sha256 over all that decides the bits of KV: configuration, weights with their scales (as stored, or as
    they were quantized), dtype computed in, and how the cache is quantized."""
    digest = hashlib.sha256()
    _feed(digest, repr(config).encode())
    _feed(digest, str(dtype).encode())
    _feed(digest, cache.encode())
    for name in sorted(weights):
        tensor = weights[name].contiguous()
        _feed(digest, f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        _feed(digest, tensor.view(torch.uint8).numpy().data.cast("B"))
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, part: bytes | memoryview) -> None:
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (config.hidden_size,),
        "post_attention_layernorm.weight": (config.hidden_size,),
    }
    for site, (inputs, outputs) in config.sites.items():
        attention = site in {"q_proj", "k_proj", "v_proj", "o_proj"}
        name = f"{'self_attn' if attention else 'mlp'}.{site}"
        shapes[f"{name}.weight"] = (outputs, inputs)
        biased = config.mlp_bias if not attention else config.o_bias if site == "o_proj" else config.qkv_bias
        if biased:
            shapes[f"{name}.bias"] = (outputs,)
    if config.head_norms:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes


def _files(model_dir: Path) -> list[tuple[Path, set[str] | None]]:
    """Weight files, each with the tensors that the index says it holds (None without an index)."""
    index = model_dir / "model.safetensors.index.json"
    if not index.exists():
        return [(model_dir / "model.safetensors", None)]
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        by_file: dict[str, set[str]] = {}
        for name, file in weight_map.items():
            by_file.setdefault(str(file), set()).add(str(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{index} is not a safetensors index: {error!r}") from error
    for file in by_file:
        if Path(file).name != file:
            raise ModelRefused(f"{index} names a file outside its folder: {file!r}")
    return [(model_dir / file, names) for file, names in sorted(by_file.items())]


def _tensors(path: Path, names: set[str] | None) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            stored = set(file.keys())
            if names is not None and stored != names:
                raise ModelRefused(f"{path.name} and the index disagree on {_some(sorted(stored ^ names))}")
            for name in sorted(stored):
                tensor = file.get_tensor(name)
                if tensor.dtype not in _FLOATS:
                    raise ModelRefused(f"tensor {name} has dtype {tensor.dtype}, which is not served")
                yield name, tensor
    except (OSError, SafetensorError) as error:
        raise ModelRefused(f"{path} can't be read as safetensors: {error}") from error


def _check_tied(found: dict[str, Tensor]) -> None:
    head = found.pop("lm_head.weight")
    embedding = found.get("model.embed_tokens.weight")
    if embedding is None or not torch.equal(head, embedding):
        raise ModelRefused(
            "tie_word_embeddings is set, but lm_head.weight differs from model.embed_tokens.weight"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
