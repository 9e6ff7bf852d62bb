"""What the files of an adapter say by themselves: the static part of its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from adapters.base import BaseSpec
from adapters.proof import Examined, ModuleFigures
from gateway.catalog.parts import CONFIG_PART

_DEVICE_BYTES: Final = 2  # of a value: bf16


class FileFacts(msgspec.Struct, frozen=True):
    name: str
    bytes: int


class TierBytes(msgspec.Struct, frozen=True):
    """Bytes that it takes. On a device its factors lie in bf16, rank-exact,
    before rounding to size classes."""

    store: int
    disk: int
    host: int
    device: int


class ValueFacts(msgspec.Struct, frozen=True):
    num_values: int
    nonfinite: int  # of a stored adapter always 0
    largest: float  # magnitude
    delta_bound: float  # sum over modules of |s|·|A|·|B|


class Facts(msgspec.Struct, frozen=True):
    files: list[FileFacts]
    num_parameters: int
    ranks: list[int]  # that occur, ascending
    matched: dict[str, int]  # target → in how many layers it changes the base
    unmatched: list[str]  # targets of its config without a module; of a stored adapter always none
    untouched: list[str]  # linear layers of the base that it leaves as they are
    bytes_by_tier: TierBytes
    values: ValueFacts
    modules: list[ModuleFigures]
    config: str | None = None  # adapter_config.json as it came; null: stored before this was kept


def facts_of(examined: Examined, base: BaseSpec, files: Mapping[str, Path], packed_bytes: int) -> Facts:
    """`packed_bytes`: of the served form, which is what store, disk and host memory hold."""
    manifest, figures = examined.manifest, examined.figures
    matched = Counter(module.site for module in manifest.modules)
    num_parameters = manifest.num_parameters
    return Facts(
        files=[FileFacts(name, path.stat().st_size) for name, path in files.items()],
        num_parameters=num_parameters,
        ranks=sorted({module.rank for module in manifest.modules}),
        matched=dict(matched),
        unmatched=[],
        untouched=[site for site in base.sites if site not in matched],
        bytes_by_tier=TierBytes(packed_bytes, packed_bytes, packed_bytes, num_parameters * _DEVICE_BYTES),
        values=ValueFacts(
            num_values=num_parameters,
            nonfinite=0,
            largest=max(each.largest for each in figures),
            delta_bound=min(sum(each.delta_bound for each in figures), 1e300),
        ),
        modules=list(figures),
        config=files[CONFIG_PART].read_text(encoding="utf-8"),
    )
