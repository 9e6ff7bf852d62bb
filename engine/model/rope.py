"""Rotary position embedding: frequencies with the scaling variants, as one table of cosines and sines.

Linear: kaiokendev 2023. Llama 3: by wavelength, as published with Llama 3.1. YaRN: Peng et al. 2023,
section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_KEYS = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
        "original_max_position_embeddings",
    },
}  # fmt: skip
_NEEDED = {
    "linear": ("factor",),
    "llama3": tuple(sorted(_KEYS["llama3"])),
    "yarn": ("factor",),
    "default": (),
}


@dataclass(frozen=True)
class Rope:
    kind: str
    theta: float
    head_dim: int
    max_position_embeddings: int
    scaling: Mapping[str, float] = field(default_factory=dict)
    rounded_to: str = "float32"
    """`bfloat16` repeats a model that was cast as a whole, its buffer of frequencies included."""

    def table(self, num_positions: int) -> Tensor:
        """float32 [positions, head_dim]: cosines of half a head, then sines."""
        frequencies, strength = self._frequencies()
        if self.rounded_to == "bfloat16":
            frequencies = frequencies.bfloat16().float()
        angles = torch.arange(num_positions, dtype=torch.float32).unsqueeze(1) * frequencies
        return torch.cat((angles.cos() * strength, angles.sin() * strength), dim=1).contiguous()

    def _frequencies(self) -> tuple[Tensor, float]:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.int64).float() / self.head_dim
        plain = 1.0 / (self.theta**exponents)
        match self.kind:
            case "default":
                return plain, 1.0
            case "linear":
                return plain / self.scaling["factor"], 1.0
            case "llama3":
                return self._llama3(plain), 1.0
            case "yarn":
                return self._yarn(plain)
            case _:
                raise AssertionError(self.kind)

    def _llama3(self, plain: Tensor) -> Tensor:
        """Long wavelengths are stretched by the factor, short ones left, those between blended."""
        scaling = self.scaling
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
        blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return (1 - blend) * plain / scaling["factor"] + blend * plain

    def _yarn(self, plain: Tensor) -> tuple[Tensor, float]:
        scaling, factor = self.scaling, self.scaling["factor"]
        original = scaling.get("original_max_position_embeddings", self.max_position_embeddings)
        low = self._dimension_of(scaling.get("beta_fast", 32.0), original)
        high = self._dimension_of(scaling.get("beta_slow", 1.0), original)
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.head_dim - 1)
        span = high - low if high != low else 0.001
        stretched = ((torch.arange(self.head_dim // 2, dtype=torch.float32) - low) / span).clamp(0.0, 1.0)
        return plain / factor * stretched + plain * (1 - stretched), self._yarn_strength(factor)

    def _dimension_of(self, turns: float, original: float) -> float:
        """The dimension that makes so many turns over the original context."""
        return self.head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

    def _yarn_strength(self, factor: float) -> float:
        def strength(mscale: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

        scaling = self.scaling
        if "attention_factor" in scaling:
            return float(scaling["attention_factor"])
        if scaling.get("mscale") and scaling.get("mscale_all_dim"):
            return strength(scaling["mscale"]) / strength(scaling["mscale_all_dim"])
        return strength(1.0)


def read_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    """From `rope_parameters` (new) or `rope_theta` and `rope_scaling` (old). Raises `ValueError` by name."""
    given = [raw[name] for name in ("rope_parameters", "rope_scaling") if raw.get(name)]
    first, *others = [_rope(raw, each, head_dim) for each in given or [{}]]
    if others and others != [first]:
        raise ValueError("rope_parameters and rope_scaling are both there, and they differ")
    return first


def _rope(raw: Mapping[str, Any], given: Any, head_dim: int) -> Rope:
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise ValueError("rope_parameters by layer type are not served")
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _KEYS:
        raise ValueError(f"rope_type {kind!r} is not served; known: {', '.join(sorted(_KEYS))}")
    scaling = {
        name: value
        for name, value in given.items()
        if name not in {"rope_type", "type", "rope_theta"} and value is not None
    }
    if scaling.pop("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not served")
    if kind == "default":
        scaling.pop("original_max_position_embeddings", None)
    for name in scaling:
        if name not in _KEYS[kind]:
            raise ValueError(f"rope_type {kind!r} has a field that this engine does not know: {name}")
    for name in _NEEDED[kind]:
        if not isinstance(scaling.get(name), (int, float)):
            raise ValueError(f"rope_type {kind!r} needs {name}")  # noqa: TRY004 - one error for a file
    theta = given.get("rope_theta", raw.get("rope_theta", 10_000.0))
    if not (isinstance(theta, (int, float)) and theta > 1):
        raise ValueError(f"rope_theta {theta!r} is not a base of frequencies")
    return Rope(kind, float(theta), head_dim, int(raw.get("max_position_embeddings") or 0), scaling)
