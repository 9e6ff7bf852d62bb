"""Scales of an FP8 KV cache, one for the keys and one for the values of each layer.

They come from the checkpoint (`k_scale`, `v_scale`), else from a file that `motet engine calibrate` wrote,
else they are measured at start: the largest key and value that a text gives, with a margin. What is larger
still is stored as the largest number there is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from adapters.refusal import RequestRefused
from engine.core.plan import BASE_SLOT, Row
from engine.kernels.shapes import E4M3_MOST, AdapterSlots, M, StepKernels
from engine.model.config import ModelRefused
from engine.model.llama import StepModel

MARGIN: Final = 2.0
"""What was measured may be exceeded so much. It costs nothing of the precision of large numbers (codes are
floating point) and one of fifteen binades at the small end."""

MOST_TOKENS: Final = 65_536  # of a text to measure with
BUILT_IN_TEXT: Final = Path(__file__).with_name("calibration.txt")
"""Prose, talk, figures, code, a list and other scripts, so that most of what keys and values reach is met."""

WINDOW_TOKENS: Final = 512  # of it that are one context
CHUNK_TOKENS: Final = 128  # of them that are computed at once
_FORMAT: Final = "motet-kv-scales-1"


@dataclass(frozen=True)
class KvScales:
    keys: tuple[float, ...]  # by layer
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = (*self.keys, *self.values)
        if len(self.keys) != len(self.values) or not all(0 < number < float("inf") for number in numbers):
            raise ModelRefused(
                "KV scales are not a positive number for the keys and the values of each layer"
            )

    @property
    def by_layer(self) -> list[tuple[float, float]]:
        return list(zip(self.keys, self.values, strict=True))

    def digest(self, base_digest: str) -> str:
        """The digest of a base whose KV is stored so: it names other KV than any other cache of that base."""
        return hashlib.sha256(f"{_FORMAT} {base_digest} {self.keys} {self.values}".encode()).hexdigest()


def find_scales(
    weights: Mapping[str, Tensor], file: Path | None, base_digest: str, num_layers: int
) -> KvScales | None:
    """Those of the file, if one is given, else the checkpoint's, if it has any."""
    if file is not None:
        return read_scales(file, base_digest, num_layers)
    return _stored_scales(weights, num_layers)


def read_scales(path: Path, base_digest: str, num_layers: int) -> KvScales:
    """A file of `write_scales`. Raises `ModelRefused` for anything else, and for one of another base."""
    try:
        raw = json.loads(path.read_bytes())
        found = KvScales(tuple(map(float, raw["keys"])), tuple(map(float, raw["values"])))
    except OSError as error:
        raise ModelRefused(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelRefused(f"{path} does not hold KV scales: {error!r}") from error
    if raw.get("format") != _FORMAT or len(found.keys) != num_layers:
        raise ModelRefused(f"{path} does not hold KV scales of {num_layers} layers in format {_FORMAT}")
    if raw.get("base_digest") != base_digest:
        raise ModelRefused(f"{path} was measured with other weights, dtype or quantization: measure again")
    return found


def _stored_scales(weights: Mapping[str, Tensor], num_layers: int) -> KvScales | None:
    """`quantization.settle_scales` saw to it that there are some for all layers, or none."""
    prefixes = [f"model.layers.{layer}.self_attn." for layer in range(num_layers)]
    if f"{prefixes[0]}k_scale" not in weights:
        return None
    return KvScales(
        tuple(weights[f"{prefix}k_scale"].item() for prefix in prefixes),
        tuple(weights[f"{prefix}v_scale"].item() for prefix in prefixes),
    )


def write_scales(path: Path, scales: KvScales, base_digest: str) -> None:
    content = {"format": _FORMAT, "base_digest": base_digest, **asdict(scales)}
    path.write_text(json.dumps(content, indent=1) + "\n")


def text_tokens(model_dir: Path, text: str) -> list[int]:
    """Raises `ModelRefused` where the folder has no tokenizer, or the text no or too many tokens."""
    from adapters.prompt import PromptEncoder  # noqa: PLC0415 - a runner that is given scales needs no tokenizer

    try:
        tokens = PromptEncoder(model_dir).encode_text(text, MOST_TOKENS)
    except (OSError, ValueError) as error:
        raise ModelRefused(f"KV scales can't be measured without a tokenizer: {error}") from error
    except RequestRefused as error:
        raise ModelRefused(f"a text to measure KV scales with has at most {MOST_TOKENS} tokens") from error
    if not tokens:
        raise ModelRefused("a text to measure KV scales with is empty")
    return tokens


def measure_scales(
    model: StepModel[M],
    kernels: StepKernels[M],
    slots: AdapterSlots,
    tokens: Sequence[int],
    dtype: torch.dtype,
    max_model_len: int,
    chunk_tokens: int = CHUNK_TOKENS,
) -> KvScales:
    """Runs `tokens` through the base in windows, `chunk_tokens` in a step, over a small cache in `dtype`, and
    looks at what is in it. `slots` stay unused."""
    shape, layers = model.attention, model.config.num_layers
    window = min(WINDOW_TOKENS, max_model_len)
    table = list(range(-(-window // shape.block_size)))
    caches = [kernels.new_cache(shape, len(table), dtype) for _ in range(layers)]
    most = torch.zeros(2, layers)
    for begin in range(0, len(tokens), window):
        part = list(tokens[begin : begin + window])
        for start in range(0, len(part), chunk_tokens):
            row = Row(0, part[start : start + chunk_tokens], start, table, BASE_SLOT)
            model.forward(kernels.plan(shape, [row], slots), caches)
        held = [
            [cache.keys.abs().amax() for cache in caches],
            [cache.values.abs().amax() for cache in caches],
        ]
        most = torch.maximum(most, torch.stack([torch.stack(side) for side in held]).float().cpu())
    if not bool(most.isfinite().all()):
        raise ModelRefused("the model's keys and values are not finite")
    keys, values = (most * MARGIN / E4M3_MOST).clamp_min(2.0**-40).tolist()
    return KvScales(tuple(keys), tuple(values))
