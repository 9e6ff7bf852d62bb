"""Adapters made up from a seed, in PEFT's files, without PEFT: any base, ranks, targets and layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.base import SITES, BaseSpec, module_name


@dataclass(frozen=True, slots=True)
class Recipe:
    """One adapter. `ranks` holds the default rank, and others by site."""

    seed: int
    rank: int = 8
    ranks: Mapping[str, int] | None = None  # site → rank, where it is not `rank`
    targets: Sequence[str] = SITES
    layers: Sequence[int] | None = None  # None = all
    alpha: float = 16.0
    std: float = 0.02
    use_rslora: bool = False


def write_adapter(folder: Path, base: BaseSpec, recipe: Recipe) -> Path:
    """Writes `adapter_config.json` and `adapter_model.safetensors` (bf16) into `folder`, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(_config(recipe), indent=1))
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(_tensors(base, recipe)))
    return folder


def mixed_recipe(seed: int, max_rank: int = 128) -> Recipe:
    """Ranks from 1 to `max_rank`, mixed within an adapter and between them; targets, layers, scaling too."""
    pick = np.random.default_rng(seed)
    ranks = [rank for rank in (1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128) if rank <= max_rank]
    targets = sorted(pick.choice(SITES, size=int(pick.integers(1, 8)), replace=False), key=SITES.index)
    others = {str(site): int(pick.choice(ranks)) for site in targets[1:] if pick.random() < 0.4}
    layers = None if pick.random() < 0.5 else sorted(pick.choice(30, size=12, replace=False).tolist())
    rank = int(pick.choice(ranks))
    return Recipe(
        seed=seed,
        rank=rank,
        ranks=others,
        targets=[str(site) for site in targets],
        layers=layers,
        alpha=float(pick.choice([rank, 2 * rank])),
        std=0.05,
        use_rslora=bool(pick.random() < 0.25),
    )


def safetensors_bytes(tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """A safetensors file of bf16 tensors."""
    header: dict[str, Any] = {}
    data: list[bytes] = []
    offset = 0
    for name, values in tensors.items():
        raw = to_bf16(values).tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        data.append(raw)
        offset += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + b"".join(data)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even, as bits."""
    bits = values.view(np.uint32)
    rounded: NDArray[np.uint32] = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def _config(recipe: Recipe) -> dict[str, Any]:
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": recipe.rank,
        "lora_alpha": recipe.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(recipe.targets),
        "use_rslora": recipe.use_rslora,
        "rank_pattern": dict(recipe.ranks or {}),
    }
    if recipe.layers is not None:
        config["layers_to_transform"] = list(recipe.layers)
        config["layers_pattern"] = "layers"
    return config


def _tensors(base: BaseSpec, recipe: Recipe) -> dict[str, NDArray[np.float32]]:
    draw = np.random.default_rng(recipe.seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for layer in recipe.layers if recipe.layers is not None else range(base.num_layers):
        for site in recipe.targets:
            inputs, outputs = base.sites[site]
            rank = (recipe.ranks or {}).get(site, recipe.rank)
            stem = f"base_model.model.{module_name(layer, site)}"
            tensors[f"{stem}.lora_A.weight"] = _normal(draw, (rank, inputs), recipe.std)
            tensors[f"{stem}.lora_B.weight"] = _normal(draw, (outputs, rank), recipe.std)
    return tensors


def _normal(draw: np.random.Generator, shape: tuple[int, int], std: float) -> NDArray[np.float32]:
    return (draw.standard_normal(shape, dtype=np.float32) * np.float32(std)).astype(np.float32)
