"""What min_p, top_k and top_p keep of rows of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.core.protocol import Sampling
from engine.model.upload import Upload

CANDIDATES = 512
"""Truncation first looks among so many best tokens, and sorts the whole vocabulary only where these don't
suffice."""


def truncates(sampling: Sampling, vocab: int) -> bool:
    return 0 < sampling.top_k < vocab or sampling.top_p < 1.0 or sampling.min_p > 0.0


def truncated(probabilities: Tensor, samplings: Sequence[Sampling], upload: Upload) -> Tensor:
    """Zero outside what min_p, top_k and top_p keep; of equally likely tokens at the edge the lower ids
    stay."""
    vocab = probabilities.shape[1]
    cuts = _cuts(samplings, vocab, upload)
    best = probabilities.topk(min(CANDIDATES, vocab), dim=1).values
    kept, unsure = _num_kept(best, cuts, vocab)
    edge = best.gather(1, kept.unsqueeze(1) - 1)
    if (rows := _rows_to_sort(unsure, samplings, upload)) is not None:
        whole = _descending(probabilities[rows])
        all_kept, _ = _num_kept(whole, cuts.of(rows), vocab)
        sure = ~unsure[rows]
        kept[rows] = kept[rows].where(sure, all_kept)
        edge[rows] = edge[rows].where(sure.unsqueeze(1), whole.gather(1, all_kept.unsqueeze(1) - 1))
    above = probabilities > edge
    at_edge = probabilities == edge
    room = kept.unsqueeze(1) - above.sum(dim=1, keepdim=True)
    stays = above | (at_edge & (at_edge.cumsum(dim=1) <= room))
    return torch.where(stays, probabilities, 0.0)


@dataclass(frozen=True, slots=True)
class _Cuts:
    top_k: Tensor  # int64 [rows]; the vocabulary where there is none
    min_p: Tensor  # float32 [rows, 1]
    top_p: Tensor  # float64 [rows, 1]

    def of(self, rows: Tensor) -> _Cuts:
        return _Cuts(self.top_k[rows], self.min_p[rows], self.top_p[rows])


def _cuts(samplings: Sequence[Sampling], vocab: int, upload: Upload) -> _Cuts:
    return _Cuts(
        upload.send(np.array([s.top_k if 0 < s.top_k < vocab else vocab for s in samplings], np.int64)),
        upload.send(np.array([s.min_p for s in samplings], np.float32)).unsqueeze(1),
        upload.send(np.array([s.top_p for s in samplings], np.float64)).unsqueeze(1),
    )


def _rows_to_sort(unsure: Tensor, samplings: Sequence[Sampling], upload: Upload) -> Tensor | None:
    """On a CPU the unsure rows alone, so that no row pays for another. To look at them would make the host
    wait for a GPU: there, all whose settings don't say that the candidates suffice."""
    if unsure.device.type == "cpu":
        rows = unsure.nonzero().flatten()
        return rows if rows.numel() else None
    may_be = [row for row, s in enumerate(samplings) if not 0 < s.top_k < CANDIDATES]
    return upload.send(np.array(may_be, np.int64)) if may_be else None


def _descending(rows: Tensor) -> Tensor:
    """Each row sorted. On a CPU by numpy, whose vectorized sort takes a third of the time of torch's: all who
    share the step wait for it."""
    if rows.device.type != "cpu":
        return rows.sort(dim=1, descending=True).values
    return torch.from_numpy(np.sort(rows.numpy(), axis=1)[:, ::-1].copy())


def _num_kept(best: Tensor, cuts: _Cuts, vocab: int) -> tuple[Tensor, Tensor]:
    """How many of the best each row keeps (at least one), and for which rows `best` doesn't reach far enough
    to know."""
    seen, top_k, top_p = best.shape[1], cuts.top_k, cuts.top_p
    likely = (best >= cuts.min_p * best[:, :1]).sum(dim=1)
    kept = torch.minimum(likely, top_k)
    within = torch.arange(seen, device=best.device) < kept.unsqueeze(1)
    cumulative = torch.where(within, best, 0.0).double().cumsum(dim=1)
    # What is left after min_p and top_k is the whole that top_p is a share of; where neither cut, that is 1.
    whole = cumulative[:, -1:]
    if seen < vocab:
        whole = whole.where((kept < seen).unsqueeze(1), 1.0)
    before = cumulative - torch.where(within, best, 0.0).double()
    nucleus = ((before < top_p * whole) & within).sum(dim=1)
    final = torch.where(top_p.squeeze(1) < 1.0, nucleus, kept).clamp_min(1)
    unsure = (final >= seen) & (seen < vocab)
    # top_k beyond what was seen, with top_p: the share's whole is unknown.
    unsure |= (kept >= seen) & (top_k < vocab) & (top_k > seen)
    return final, unsure
