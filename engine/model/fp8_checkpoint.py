"""What a checkpoint says of its FP8 weights: `quantization_config` of config.json, in the two ways in which
such checkpoints are published (compressed-tensors' `float-quantized`, and the older `fp8`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class UnknownQuantization(ValueError):
    """A `quantization_config` that isn't understood; the message names the field."""


@dataclass(frozen=True)
class Fp8Checkpoint:
    """How a checkpoint was quantized: the linear modules that `targets` match and `ignored` don't.

    Scales of activations that were measured beforehand (`static_activations`) are not used: scales by token,
    found as the tokens come, are finer and never saturate.
    """

    targets: tuple[str, ...]
    ignored: tuple[str, ...]
    static_activations: bool
    has_kv_scales: bool

    def quantizes(self, module: str) -> bool:
        """`module`: a full name, as "model.layers.0.mlp.up_proj"."""
        return _matches(module, self.targets) and not _matches(module, self.ignored)


def read_quantization(raw: object) -> Fp8Checkpoint:
    """`quantization_config` of config.json. Raises `UnknownQuantization` for whatever isn't served."""
    if not isinstance(raw, Mapping):
        raise UnknownQuantization(f"is {raw!r}, not an object")
    match raw.get("quant_method"):
        case "compressed-tensors":
            return _compressed_tensors(raw)
        case "fp8":
            return _plain_fp8(raw)
        case other:
            raise UnknownQuantization(f"quant_method {other!r} is not served; known: compressed-tensors, fp8")


def _compressed_tensors(raw: Mapping[str, Any]) -> Fp8Checkpoint:
    _only(raw, {"quant_method", "format", "quantization_status", "config_groups", "ignore", "kv_cache_scheme",
                "global_compression_ratio", "version", "sparsity_config", "transform_config"})  # fmt: skip
    _one_of(raw, "format", ["float-quantized"])
    _one_of(raw, "quantization_status", ["compressed", "frozen", None])
    for name in ("sparsity_config", "transform_config"):
        if raw.get(name) not in (None, {}) and raw[name] != {"format": "dense"}:
            raise UnknownQuantization(f"{name} is not served")
    groups = raw.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise UnknownQuantization("config_groups is empty")
    static = [_group(name, group) for name, group in groups.items()]
    scheme = raw.get("kv_cache_scheme")
    if scheme is not None:
        _arguments("kv_cache_scheme", scheme, [("tensor", False)])
    targets = [target for group in groups.values() for target in _names(group, "targets")]
    return Fp8Checkpoint(tuple(targets), tuple(_names(raw, "ignore")), any(static), scheme is not None)


def _group(name: str, group: object) -> bool:
    """Checks one of `config_groups`. Returns whether its scales of activations are static."""
    if not isinstance(group, Mapping):
        raise UnknownQuantization(f"config_groups.{name} is not an object")
    _only(group, {"targets", "weights", "input_activations", "output_activations", "format"}, name)
    _one_of(group, "format", ["float-quantized", None])
    _one_of(group, "output_activations", [None])
    _arguments(f"{name}.weights", group.get("weights"), [("tensor", False), ("channel", False)])
    schemes = [("token", True), ("tensor", True), ("tensor", False)]
    return not _arguments(f"{name}.input_activations", group.get("input_activations"), schemes)


def _arguments(where: str, raw: object, schemes: list[tuple[str, bool]]) -> bool:
    """Checks how one kind of number is quantized, against (strategy, dynamic) pairs. Returns `dynamic`."""
    if not isinstance(raw, Mapping):
        raise UnknownQuantization(f"{where} is {raw!r}: only weights and activations in FP8 are served")
    neutral = {"observer", "observer_kwargs"}
    known = {"num_bits", "type", "symmetric", "strategy", "dynamic"}
    _only({key: value for key, value in raw.items() if key not in neutral}, known, where)
    found = (raw.get("num_bits"), raw.get("type"), raw.get("symmetric", True))
    if found != (8, "float", True):
        raise UnknownQuantization(
            f"{where} has num_bits, type, symmetric of {found}; only (8, float, True) is served"
        )
    scheme = (raw.get("strategy"), bool(raw.get("dynamic", False)))
    if scheme not in schemes:
        raise UnknownQuantization(
            f"{where} has strategy {scheme[0]!r} with dynamic {scheme[1]}, which is not served"
        )
    return scheme[1]


def _plain_fp8(raw: Mapping[str, Any]) -> Fp8Checkpoint:
    _only(raw, {"quant_method", "activation_scheme", "ignored_layers", "modules_to_not_convert",
    "kv_cache_scheme",
                "fmt"})  # fmt: skip
    _one_of(raw, "activation_scheme", ["static", "dynamic"])
    _one_of(raw, "kv_cache_scheme", ["static", None])
    _one_of(raw, "fmt", ["e4m3", None])
    ignored = (*_names(raw, "ignored_layers"), *_names(raw, "modules_to_not_convert"))
    static = raw["activation_scheme"] == "static"
    return Fp8Checkpoint(("Linear",), ignored, static, raw.get("kv_cache_scheme") is not None)


def _matches(module: str, patterns: Iterable[str]) -> bool:
    return any(_match(module, pattern) for pattern in patterns)


def _match(module: str, pattern: str) -> bool:
    """A pattern is a regular expression after "re:", a full name, or the class of all linear layers."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    return pattern in (module, "Linear")


def _names(raw: Mapping[str, Any], field: str) -> list[str]:
    names = raw.get(field) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnknownQuantization(f"{field} is not a list of names")
    for name in names:
        if name.startswith("re:"):
            try:
                re.compile(name[3:])
            except re.error as error:
                raise UnknownQuantization(f"{field} has {name!r}, which is no pattern: {error}") from error
    return names


def _only(raw: Mapping[str, Any], known: set[str], where: str = "") -> None:
    """Fields that are absent, null or False by default change nothing."""
    odd = sorted(str(key) for key, value in raw.items() if key not in known and value not in (None, False))
    if odd:
        raise UnknownQuantization(f"{where + ': ' if where else ''}{', '.join(odd)} not known")


def _one_of(raw: Mapping[str, Any], field: str, values: list[Any]) -> None:
    if raw.get(field) not in values:
        raise UnknownQuantization(f"{field} {raw.get(field)!r} is not served")
