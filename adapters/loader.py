"""Packed file → host tensors. The only module of this package that holds torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import torch

from adapters.base import BaseSpec
from adapters.packed import PackedCorrupt, PackedHeader, PackedPart, PackedTensor, check_part, verify
from adapters.packed import read_header as read_packed_header

_DTYPES: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class WrongBase(Exception):
    """The artefact was packed for another base than the one this process serves."""


@dataclass(frozen=True, slots=True)
class HostAdapter:
    """An adapter in host memory, in the dtype in which it was uploaded. `modules[layer, site]` is
    (A [rank, in], B [out, rank], scale); the scale stays apart, so that factors are never rounded by it."""

    artefact: str
    modules: Mapping[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]]
    num_bytes: int

    @property
    def max_rank(self) -> int:
        return max(a.shape[0] for a, _, _ in self.modules.values())


def load(path: Path, base: BaseSpec, artefact: str | None = None) -> HostAdapter:
    """Reads the file once, checking each part's checksum on what landed in memory, and that it is `artefact`
    where one is named. Raises `PackedCorrupt`, `WrongBase`, OSError."""
    header = read_packed_header(path)
    if artefact is not None and header.artefact != artefact:
        raise PackedCorrupt(f"{path.name} holds artefact {header.artefact}, not {artefact}")
    if header.base_id != base.base_id:
        raise WrongBase(
            f"artefact {header.artefact} was packed for base {header.base_id}, not {base.base_id}"
        )
    modules: dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]] = {}
    with path.open("rb") as file:
        for part in header.parts:
            modules.update(_modules(part, _read_part(file, part), base))
    return HostAdapter(header.artefact, modules, sum(part.size for part in header.parts))


def _read_part(file: BinaryIO, part: PackedPart) -> torch.Tensor:
    memory = torch.empty(part.size, dtype=torch.uint8)
    view = memory.numpy().data
    file.seek(part.offset)
    if file.readinto(view) != part.size:  # type: ignore[attr-defined]  # BufferedReader has it, BinaryIO's type doesn't say
        raise PackedCorrupt(f"layer {part.layer} ends too early")
    check_part(part, hashlib.sha256(view).hexdigest())
    return memory


def _modules(
    part: PackedPart, memory: torch.Tensor, base: BaseSpec
) -> Iterator[tuple[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]]]:
    for module in part.modules:
        shape = base.sites.get(module.site)
        a, b = _view(memory, module.a), _view(memory, module.b)
        if shape is None or (a.shape, b.shape) != ((module.rank, shape[0]), (shape[1], module.rank)):
            raise PackedCorrupt(f"{module.site} of layer {part.layer} does not fit the base")
        yield (part.layer, module.site), (a, b, module.scale)


def _view(memory: torch.Tensor, place: PackedTensor) -> torch.Tensor:
    raw = memory[place.offset : place.offset + place.num_bytes]
    return raw.view(_DTYPES[place.dtype]).view(place.rows, place.columns)


__all__ = ["HostAdapter", "PackedCorrupt", "PackedHeader", "WrongBase", "load", "verify"]
