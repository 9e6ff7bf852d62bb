"""What an uploaded adapter is, from its config and the header of its tensors file: no tensor is read for
it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from adapters.base import ATTENTION_SITES, SITES, BaseSpec, module_name
from adapters.patterns import UnsafePattern
from adapters.peft_config import MAX_RANK, LoraConfig, read_config
from adapters.refused import CONFIG, WEIGHTS, AdapterRefused, Part, RefusalCode
from adapters.safetensors_header import Tensor, read_header, shown

__all__ = ["AdapterRefused", "Manifest", "Module", "RefusalCode", "read_manifest"]

MAX_WEIGHTS_BYTES: Final = 2 * 1024 * 1024 * 1024

_NAME: Final = re.compile(
    r"base_model\.model\.model\.layers\.(?P<layer>0|[1-9][0-9]{0,4})\.(?P<block>self_attn|mlp)\."
    r"(?P<site>[a-z_]+)\.lora_(?P<factor>[AB])(?:\.default)?\.weight"
)
_KNOWN_OTHERS: Final = {
    "lora_magnitude_vector": "a DoRA magnitude",
    "lora_embedding": "an embedding adapter",
    "modules_to_save": "a module saved whole",
    "token_adapter": "trained tokens",
    ".bias": "a bias",
}


class Module(msgspec.Struct, frozen=True):
    """One linear layer that the adapter changes: y += scale · B·(A·x)."""

    layer: int
    site: str  # one of base.SITES
    rank: int
    scale: float
    lora_a: Tensor  # [rank, in]
    lora_b: Tensor  # [out, rank]


class Manifest(msgspec.Struct, frozen=True):
    """`modules` is ordered by layer, then by the order of `base.SITES`."""

    modules: tuple[Module, ...]

    @property
    def max_rank(self) -> int:
        return max(module.rank for module in self.modules)

    @property
    def num_parameters(self) -> int:
        return sum(
            tensor.shape[0] * tensor.shape[1]
            for module in self.modules
            for tensor in (module.lora_a, module.lora_b)
        )

    @property
    def num_bytes(self) -> int:
        return sum(module.lora_a.num_bytes + module.lora_b.num_bytes for module in self.modules)

    @property
    def targets(self) -> tuple[str, ...]:
        """The sites it changes in some layer, in the order of `base.SITES`."""
        found = {module.site for module in self.modules}
        return tuple(site for site in SITES if site in found)


def read_manifest(
    config: bytes, weights: Path, base: BaseSpec, *, max_weights_bytes: int = MAX_WEIGHTS_BYTES
) -> Manifest:
    """Checks config and header against each other and against the base; raises `AdapterRefused`."""
    lora = read_config(config)
    tensors = read_header(weights, max_weights_bytes)
    pairs = _pairs(tensors, base)
    try:
        targeted = _check_targets(lora, pairs, base)
        modules = tuple(_module(lora, base, place, pairs[place]) for place in targeted)
    except UnsafePattern as error:  # patterns spend their budget when they are matched
        _refuse(RefusalCode.UNSAFE_PATTERN, str(error), CONFIG)
    return Manifest(modules)


_Place = tuple[int, str]
_Pairs = Mapping[_Place, Mapping[str, Tensor]]


def _pairs(tensors: Mapping[str, Tensor], base: BaseSpec) -> _Pairs:
    """A and B of each (layer, site)."""
    pairs: dict[_Place, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        layer, site, factor = _place(name, base)
        pair = pairs.setdefault((layer, site), {})
        if factor in pair:
            _refuse(
                RefusalCode.DUPLICATE_TENSOR,
                f"{shown(name)} and {shown(pair[factor].name)} are the same factor twice",
            )
        pair[factor] = tensor
    for pair in pairs.values():
        if len(pair) == 1:
            ((factor, tensor),) = pair.items()
            other = "B" if factor == "A" else "A"
            _refuse(RefusalCode.MISSING_PAIR, f"{shown(tensor.name)} has no lora_{other} beside it")
    return pairs


def _place(name: str, base: BaseSpec) -> tuple[int, str, str]:
    found = _NAME.fullmatch(name)
    if found is None or found["site"] not in SITES:
        what = next((what for mark, what in _KNOWN_OTHERS.items() if mark in name), None)
        reason = (
            f"is {what}, which is not served" if what else "is not the name of a LoRA factor of this base"
        )
        _refuse(RefusalCode.UNKNOWN_TENSOR, f"{shown(name)} {reason}")
    layer, site = int(found["layer"]), found["site"]
    if (site in ATTENTION_SITES) != (found["block"] == "self_attn"):
        _refuse(RefusalCode.UNKNOWN_TENSOR, f"{shown(name)} names a site in the wrong block")
    if layer >= base.num_layers:
        _refuse(
            RefusalCode.BASE_MISMATCH,
            f"{shown(name)} belongs to layer {layer}, but {base.name} has {base.num_layers} layers, 0 to "
            f"{base.num_layers - 1}: the adapter was made for another base",
        )
    return layer, site, found["factor"]


def _check_targets(lora: LoraConfig, pairs: _Pairs, base: BaseSpec) -> list[_Place]:
    """The places in their order, once every tensor is targeted and every target has a tensor."""
    used: set[str] = set()
    places = sorted(pairs, key=lambda place: (place[0], SITES.index(place[1])))
    for layer, site in places:
        targets = lora.targets_of(module_name(layer, site), layer)
        if not targets:
            _refuse(
                RefusalCode.TENSOR_WITHOUT_TARGET,
                f"{shown(pairs[layer, site]['A'].name)} changes a module that the config does not target",
            )
        used.update(targets)
    for target, _ in lora.targets:
        if target not in used:
            _refuse(
                RefusalCode.TARGET_WITHOUT_TENSOR,
                f"'target_modules' names {shown(target)}, for which there is no tensor",
            )
    return places


def _module(lora: LoraConfig, base: BaseSpec, place: _Place, pair: Mapping[str, Tensor]) -> Module:
    layer, site = place
    lora_a, lora_b = pair["A"], pair["B"]
    inputs, outputs = base.sites[site]
    _check_side(lora_a, 1, inputs, base, f"{site} takes {inputs} inputs")
    _check_side(lora_b, 0, outputs, base, f"{site} gives {outputs} outputs")
    name = module_name(layer, site)
    rank = lora.rank_of(name)
    for tensor, has in ((lora_a, lora_a.shape[0]), (lora_b, lora_b.shape[1])):
        if not 1 <= has <= MAX_RANK:
            _refuse(
                RefusalCode.RANK_OUT_OF_RANGE,
                f"{shown(tensor.name)} has rank {has}; ranks from 1 to {MAX_RANK} are served",
            )
        if has != rank:
            _refuse(
                RefusalCode.RANK_MISMATCH,
                f"{shown(tensor.name)} has shape {list(tensor.shape)}, rank {has}, but the config declares "
                f"rank {rank}",
            )
    return Module(layer, site, rank, lora.scale_of(name), lora_a, lora_b)


def _check_side(tensor: Tensor, axis: int, expected: int, base: BaseSpec, fact: str) -> None:
    if tensor.shape[axis] != expected:
        _refuse(
            RefusalCode.BASE_MISMATCH,
            f"{shown(tensor.name)} has shape {list(tensor.shape)}, but in {base.name} {fact}: the adapter "
            "was made for another base",
        )


def _refuse(code: RefusalCode, message: str, part: Part = WEIGHTS) -> NoReturn:
    raise AdapterRefused(code, message, part)
