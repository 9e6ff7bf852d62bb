"""Adapters made from a demo adapter: broken on purpose, or sound and odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from adapters.base import BaseSpec
from adapters.digest import artefact_id, content_digest
from adapters.manifest import read_manifest
from adapters.packed import pack
from adapters.store import artefact_path, open_store
from tests.engine.server.running_engine import BASE_NAME, DEMO, OWNER

Tensors = dict[str, Tensor]
Change = Callable[[Tensors, dict[str, Any]], None]
"""Alters tensors and `adapter_config.json` in place."""


@dataclass(frozen=True)
class Workshop:
    """Makes packed adapters in `folder`, for the base in `model`."""

    folder: Path
    model: Path
    store: Path

    def packed(self, change: Change, *, artefact: str | None = None, base_id: str | None = None) -> Path:
        """The demo adapter `pirate`, changed; under its own artefact id, unless another is given."""
        base = BaseSpec.from_dir(self.model, BASE_NAME)
        tensors = load_file(DEMO / "pirate" / "adapter_model.safetensors")
        config = json.loads((DEMO / "pirate" / "adapter_config.json").read_text())
        change(tensors, config)
        weights = self.folder / "adapter_model.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, weights)
        manifest = read_manifest(json.dumps(config).encode(), weights, base)
        known = artefact or artefact_id(OWNER, content_digest(manifest, weights, base.base_id))
        path = self.folder / f"{known}.motet"
        pack(manifest, weights, path, artefact=known, base_id=base_id or base.base_id)
        return path

    def stored(self, change: Change, *, base_id: str | None = None) -> str:
        """Puts it into the store; its artefact id."""
        path = self.packed(change, base_id=base_id)
        open_store(str(self.store)).put_file(path, artefact_path(OWNER, path.stem))
        return path.stem


def times(a: float, b: float) -> Change:
    """All A and all B, each by a factor."""

    def change(tensors: Tensors, config: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            tensors[name] = (tensor.float() * (a if "lora_A" in name else b)).to(torch.bfloat16)

    return change


def larger_scale(tensors: Tensors, config: dict[str, Any]) -> None:
    config["lora_alpha"] = config["lora_alpha"] * 1.1


def swapped_layers(tensors: Tensors, config: dict[str, Any]) -> None:
    for name in [name for name in tensors if ".layers.14." in name]:
        other = name.replace(".layers.14.", ".layers.15.")
        tensors[name], tensors[other] = tensors[other], tensors[name]


def transposed_site(tensors: Tensors, config: dict[str, Any]) -> None:
    """The query projections, which are square, of two layers."""
    for name in [n for n in tensors if "q_proj.lora_A" in n and (".layers.10." in n or ".layers.20." in n)]:
        other = name.replace("lora_A", "lora_B")
        tensors[name], tensors[other] = tensors[other].t(), tensors[name].t()


def missing_module(tensors: Tensors, config: dict[str, Any]) -> None:
    for name in [name for name in tensors if ".layers.27." in name and "q_proj" in name]:
        del tensors[name]
