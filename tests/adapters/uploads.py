"""Uploads built byte by byte, good ones and such as no library would write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adapters.base import SITES, BaseSpec, module_name
from adapters.manifest import Manifest, read_manifest

PREFIX = "base_model.model."
TINY = BaseSpec(
    name="tiny",
    architecture="LlamaForCausalLM",
    num_layers=3,
    hidden_size=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    intermediate_size=24,
    vocab_size=64,
    max_model_len=32,
    eos_ids=(2,),
    tokenizer_digest="0" * 64,
    longest_token_bytes=8,
)


@dataclass
class Blob:
    """One tensor as it goes into the file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass
class Upload:
    """An adapter to be damaged before it is written. `mend` changes the header's entries, `cut` the whole
    file."""

    config: dict[str, Any]
    tensors: dict[str, Blob]
    raw_config: bytes | None = None
    metadata: Any = field(default_factory=lambda: {"format": "pt"})
    mend: Callable[[dict[str, Any]], object] = lambda header: None
    cut: Callable[[bytes], bytes] = lambda raw: raw

    def config_bytes(self) -> bytes:
        return json.dumps(self.config).encode() if self.raw_config is None else self.raw_config

    def weights_bytes(self) -> bytes:
        header: dict[str, Any] = {"__metadata__": self.metadata}
        at = 0
        for name, blob in self.tensors.items():
            header[name] = {
                "dtype": blob.dtype,
                "shape": list(blob.shape),
                "data_offsets": [at, at + len(blob.data)],
            }
            at += len(blob.data)
        self.mend(header)
        raw = json.dumps(header).encode()
        body = b"".join(blob.data for blob in self.tensors.values())
        return self.cut(len(raw).to_bytes(8, "little") + raw + body)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        weights = folder / "adapter_model.safetensors"
        weights.write_bytes(self.weights_bytes())
        return weights

    def manifest(self, folder: Path, base: BaseSpec = TINY) -> Manifest:
        return read_manifest(self.config_bytes(), self.write(folder), base)


def encode(values: np.ndarray[Any, Any], dtype: str) -> bytes:
    """Values in the file's form; bf16 by cutting fp32, which is exact for what the tests draw."""
    if dtype == "BF16":
        return bytes((values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
    return bytes(values.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes())


def factor_names(layer: int, site: str) -> tuple[str, str]:
    name = PREFIX + module_name(layer, site)
    return f"{name}.lora_A.weight", f"{name}.lora_B.weight"


def upload(
    ranks: Mapping[tuple[int, str], int] | None = None,
    *,
    base: BaseSpec = TINY,
    dtype: str = "BF16",
    seed: int = 0,
    **config: Any,
) -> Upload:
    """A good upload with a rank for each (layer, site); by default rank 4 on q_proj and v_proj of all
    layers."""
    places = ranks or {(layer, site): 4 for layer in range(base.num_layers) for site in ("q_proj", "v_proj")}
    draw = np.random.default_rng(seed)
    tensors = {}
    for (layer, site), rank in places.items():
        inputs, outputs = base.sites[site]
        for name, shape in zip(factor_names(layer, site), ((rank, inputs), (outputs, rank)), strict=True):
            values = draw.integers(1, 9, size=shape) / 8 * draw.choice([-1.0, 1.0], size=shape)
            tensors[name] = Blob(dtype, shape, encode(values, dtype))
    used = {site for _, site in places}
    rank = next(iter(places.values()))
    pattern = {module_name(*place): own for place, own in places.items() if own != rank}
    return Upload(
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": rank,
            "lora_alpha": 8,
            "target_modules": [site for site in SITES if site in used],
            "rank_pattern": pattern,
            "bias": "none",
            **config,
        },
        tensors,
    )
