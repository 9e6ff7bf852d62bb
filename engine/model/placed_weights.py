"""A model's weights, each brought to the device and the dtype computed in when it is asked for.

Whoever builds a layer of several of them lets go of the parts: at no time is more than one layer there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from engine.model.quantization import E4M3


class PlacedWeights(Mapping[str, Tensor]):
    """Codes in FP8 and scales keep their dtype."""

    def __init__(self, weights: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device) -> None:
        self._weights = weights
        self._dtype = dtype
        self._device = device

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._weights[name]
        keeps = tensor.dtype is E4M3 or name.endswith("_scale")
        return tensor.to(self._device, tensor.dtype if keeps else self._dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
