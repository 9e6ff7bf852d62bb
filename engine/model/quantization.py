"""FP8 (e4m3fn) numbers with scales: of weights, as published or made at load, and of activations.

A code is a number of 8 bits, at most 448 either way; what it stands for is `code * scale`. Weights have a
scale for each output (a published scale of a whole tensor is spread over them), activations one for each
token, found as they come. The format: Micikevicius et al., "FP8 formats for deep learning", 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from engine.kernels.shapes import E4M3_MOST
from engine.model.config import ModelConfig, ModelRefused

E4M3: Final = torch.float8_e4m3fn
SMALLEST_SCALE: Final = 2.0**-100
"""Below it a division by the scale would overflow; a row of so small numbers counts as zeros."""

_KV_SCALES: Final = {
    "k": ("k_scale", "k_proj.k_scale", "k_proj.output_scale", "kv_scale"),
    "v": ("v_scale", "v_proj.v_scale", "v_proj.output_scale", "kv_scale"),
}
"""How checkpoints call them, under `model.layers.N.self_attn.`; the first is what they are called here."""


def to_codes(x: Tensor) -> Tensor:
    """float32 → e4m3, to nearest even, saturated to ±448. What is not finite becomes NaN: an infinity that
    ended at 448 would pass for a number."""
    return torch.where(x.isfinite(), x.clamp(-E4M3_MOST, E4M3_MOST), torch.nan).to(E4M3)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [rows, width] and float32 scales [rows, 1] such that a row's largest number is ±448. A row that
    is not finite becomes NaN, as a whole or where it isn't."""
    x = x.float()
    scale = (x.abs().amax(dim=1, keepdim=True) / E4M3_MOST).clamp_min(SMALLEST_SCALE)
    return to_codes(x / scale), scale


def quantize_weights(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The linear sites of all layers in FP8, scaled by output; embeddings and head, and what is in FP8
    already, stay as they are."""
    quantized = dict(weights)
    for module in linear_modules(config):
        weight = weights[f"{module}.weight"]
        if module != "lm_head" and weight.dtype is not E4M3:
            quantized[f"{module}.weight"], quantized[f"{module}.weight_scale"] = quantize_rows(weight)
    return quantized


def linear_modules(config: ModelConfig) -> Iterator[str]:
    """Full names of the linear layers."""
    for layer in range(config.num_layers):
        for site in config.sites:
            part = "mlp" if site in {"gate_proj", "up_proj", "down_proj"} else "self_attn"
            yield f"model.layers.{layer}.{part}.{site}"
    if not config.tied_embeddings:
        yield "lm_head"


def settle_scales(config: ModelConfig, found: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Brings the scales among the tensors of a checkpoint into one form, in place: `weight_scale` float32
    [out, 1] beside each weight in FP8, and `k_scale`, `v_scale` float32 [1] of each layer, if there are any.
    Returns their shapes by name. Raises `ModelRefused` where tensors and `quantization_config` disagree."""
    shapes: dict[str, tuple[int, ...]] = {}
    for module in linear_modules(config):
        weight = found.get(f"{module}.weight")
        if weight is None:
            continue  # told with all others that are missing
        if _is_coded(config, module, weight):
            scale = _weight_scale(module, found, weight.shape[0])
            found[f"{module}.weight_scale"] = scale
            shapes[f"{module}.weight_scale"] = tuple(scale.shape)
    for name, tensor in found.items():
        if tensor.dtype is E4M3 and name.removesuffix(".weight") + ".weight_scale" not in shapes:
            raise ModelRefused(
                f"tensor {name} is in FP8, and quantization_config does not say that it may be"
            )
    return shapes | _settle_kv_scales(config, found)


def _is_coded(config: ModelConfig, module: str, weight: Tensor) -> bool:
    coded = weight.dtype is E4M3
    wanted = config.fp8 is not None and config.fp8.quantizes(module)
    if coded == wanted or (
        module == "lm_head" and not coded
    ):  # heads stay as they are, often without being named
        return coded
    told = "quantizes it" if wanted else "does not quantize it"
    raise ModelRefused(f"tensor {module}.weight is {weight.dtype}, and quantization_config {told}")


def _weight_scale(module: str, found: dict[str, Tensor], outputs: int) -> Tensor:
    scale = found.pop(f"{module}.weight_scale", None)
    if scale is None:
        raise ModelRefused(f"tensor {module}.weight_scale is missing (scales by block are not served)")
    if scale.numel() != 1 and tuple(scale.shape) not in {(outputs,), (outputs, 1)}:
        raise ModelRefused(
            f"tensor {module}.weight_scale has shape {list(scale.shape)}: not one, nor one an output"
        )
    static = found.pop(f"{module}.input_scale", None)
    if static is not None:
        _check_scale(f"{module}.input_scale", static)  # not used: activations are scaled by token
    return _check_scale(f"{module}.weight_scale", scale).reshape(-1, 1).expand(outputs, 1).contiguous()


def _settle_kv_scales(config: ModelConfig, found: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    names: set[str] = set()
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}.self_attn."
        for spellings in _KV_SCALES.values():
            known = next((prefix + name for name in spellings if prefix + name in found), None)
            if known is None:
                continue
            names.add(known)
            shapes[prefix + spellings[0]] = (1,)
            scale = _check_scale(known, found[known])
            if scale.numel() != 1:
                raise ModelRefused(
                    f"tensor {known} has shape {list(scale.shape)}; only one scale a layer is served"
                )
            found[prefix + spellings[0]] = scale.reshape(1)
    for name in names - set(shapes):
        del found[name]
    declared = config.fp8 is not None and config.fp8.has_kv_scales
    if len(shapes) not in ({2 * config.num_layers} if declared else {0, 2 * config.num_layers}):
        raise ModelRefused(f"{len(shapes)} scales of keys and values are there, not two a layer")
    return shapes


def _check_scale(name: str, scale: Tensor) -> Tensor:
    scale = scale.float()
    if not bool((scale.isfinite() & (scale > 0)).all()):
        raise ModelRefused(f"tensor {name} is not a positive number")
    return scale
