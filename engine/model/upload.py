"""Small arrays of a step, to the device: pinned and asynchronous on a GPU, in place on a CPU."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Upload:
    """Sends arrays to one device, on its current stream, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def send(self, array: NDArray[np.generic]) -> Tensor:
        """A tensor of the array's type and shape. The caller gives the array away."""
        host = torch.from_numpy(array)
        if self._device.type == "cpu":
            return host
        # Pinned memory comes from torch's cache of it: a block is given out again once its copies are done.
        return host.pin_memory().to(self._device, non_blocking=True)
