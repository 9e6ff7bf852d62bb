"""The dense child of a replica's server: computes in float32 what the replica should have served
(`engine/model/dense.py`), at a low priority, and with nothing of the serving side but the files.

Started by the server when a proof needs it (`engine/proofs/dense_child.py`); leaves when its standard input
ends.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import msgspec
import torch

from adapters.base import BaseSpec
from adapters.loader import load
from adapters.packed import PackedCorrupt
from engine.model.dense import DenseModel, Modules
from engine.model.dense_ceiling import Ceilings
from engine.model.runner import DTYPES
from engine.process_life import end_with, own_output
from engine.proofs.dense_wire import DenseAnswer, DenseOrder, DenseSettings, framed, read_order
from engine.server.logs import set_up_logs

log = logging.getLogger("engine.dense")


def main(arguments: list[str]) -> int:
    set_up_logs()
    output = own_output()
    settings = msgspec.json.decode(arguments[0], type=DenseSettings)
    end_with(settings.server_pid)
    os.nice(settings.nice)
    torch.set_num_threads(1)
    dense = Dense(settings)
    while (order := read_order(sys.stdin.buffer)) is not None:
        output.write(framed(dense.answer(order)))
        output.flush()
    return 0


class Dense:
    """Keeps the mapped checkpoint and the norms of its weights, and nothing of any adapter."""

    def __init__(self, settings: DenseSettings) -> None:
        folder = Path(settings.model)
        self._base = BaseSpec.from_dir(folder, settings.name)
        self._model = DenseModel.open(folder, DTYPES[settings.dtype], settings.quantization)
        self._ceilings = Ceilings(self._model)

    def answer(self, order: DenseOrder) -> DenseAnswer:
        try:
            return self._computed(order)
        except (FileNotFoundError, PackedCorrupt) as error:
            return DenseAnswer(missing=True, error=str(error))
        except Exception as error:  # one proof fails, the next may not
            log.exception("dense twin failed")
            return DenseAnswer(error=f"{type(error).__name__}: {error}")

    def _computed(self, order: DenseOrder) -> DenseAnswer:
        modules = self._modules(order.path)
        logprobs = self._model.logprobs(order.prompts, modules, shaken=order.shaken)
        told = [
            row[torch.tensor(tokens)].tolist() for row, tokens in zip(logprobs, order.wanted, strict=True)
        ]
        ranks = [a.shape[0] for a, _, _ in modules.values()]
        return DenseAnswer(told, self._ceilings.of(modules), max(ranks, default=0))

    def _modules(self, path: str | None) -> Modules:
        return {} if path is None else load(Path(path), self._base).modules


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
