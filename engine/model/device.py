"""Which device a replica computes on."""

from __future__ import annotations

import torch

from engine.model.config import ModelRefused

BFLOAT16 = (8, 0)  # compute capability


def chosen_device(setting: str, rank: int = 0, count: int = 1) -> torch.device:
    """`setting`: "cpu", "cuda", or "auto", which is a GPU that knows bfloat16 if there is one. Of `count`
    processes each has its own. Raises `ModelRefused`."""
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelRefused("device 'cuda' was asked for, and torch finds none")
    if torch.cuda.get_device_capability() < BFLOAT16:
        if setting == "auto":
            return torch.device("cpu")
        raise ModelRefused("a GPU of compute capability 8.0 or later is needed, for bfloat16")
    if torch.cuda.device_count() < count:
        raise ModelRefused(
            f"{count} GPUs are needed, a process each; torch finds {torch.cuda.device_count()}"
        )
    return torch.device("cuda", rank)
