"""adapter_config.json as PEFT writes it: what it asks for, or `AdapterRefused`. Nothing in it is silently
ignored.

A field is honoured, or known to leave inference as it is, or must stand at the value that asks for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from adapters.base import SITES
from adapters.patterns import Budget, UnsafePattern, compile_pattern
from adapters.refused import CONFIG, AdapterRefused, RefusalCode
from adapters.safetensors_header import shown
from adapters.strict_json import InvalidJson, decode_object

MAX_CONFIG_BYTES: Final = 1024 * 1024
MAX_RANK: Final = 256
MAX_PATTERNS: Final = 2_048
MAX_ALPHA: Final = 1e6

_HONOURED: Final = frozenset(
    {
        "peft_type",
        "task_type",
        "r",
        "lora_alpha",
        "use_rslora",
        "rank_pattern",
        "alpha_pattern",
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "bias",
        "init_lora_weights",
    }
)
_INERT: Final = frozenset(
    {
        # where it came from
        "base_model_name_or_path",
        "revision",
        "peft_version",
        "auto_mapping",
        # how it was trained or initialised; the trained tensors hold the result
        "inference_mode",
        "lora_dropout",
        "eva_config",
        "ensure_weight_tying",  # says how saved embeddings are tied; adapters with those are refused
        # says something only beside a field that is refused
        "megatron_core",
        "qalora_group_size",
        "runtime_config",
    }
)
_UNSERVED: Final = {
    "use_dora": "DoRA",
    "modules_to_save": "modules saved whole (modules_to_save)",
    "trainable_token_indices": "trained tokens",
    "lora_bias": "LoRA biases (lora_bias)",
    "fan_in_fan_out": "transposed weights (fan_in_fan_out)",
    "layer_replication": "layer replication",
    "alora_invocation_tokens": "activated LoRA (alora_invocation_tokens)",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA (use_bdlora)",
    "megatron_config": "Megatron layers",
    "target_parameters": "parameters outside linear layers (target_parameters)",
    "arrow_config": "Arrow routing",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "velora_config": "VeLoRA",
    "corda_config": "CorDA, which changes the base's weights",
    "lora_ga_config": "LoRA-GA, which changes the base's weights",
    "loftq_config": "LoftQ, which changes the base's weights",
}
_INITS_THAT_KEEP_THE_BASE: Final = (True, False, None, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """What the config asks of each module of the base, by the module's name
    (`model.layers.0.mlp.up_proj`)."""

    rank: int
    alpha: float
    use_rslora: bool
    ranks: tuple[tuple[Callable[[str], bool], int], ...]
    alphas: tuple[tuple[Callable[[str], bool], float], ...]
    targets: tuple[tuple[str, Callable[[str], bool]], ...]  # as written, and its test
    excludes: tuple[Callable[[str], bool], ...]
    layers: frozenset[int] | None  # None = all

    def targets_of(self, module: str, layer: int) -> list[str]:
        """The entries of target_modules that pick this module; none = it stays as in the base."""
        if (self.layers is not None and layer not in self.layers) or any(
            test(module) for test in self.excludes
        ):
            return []
        return [target for target, test in self.targets if test(module)]

    def rank_of(self, module: str) -> int:
        return next((rank for test, rank in self.ranks if test(module)), self.rank)

    def scale_of(self, module: str) -> float:
        """What B·A·x is multiplied by: alpha / r, or alpha / sqrt(r) with rsLoRA."""
        alpha = next((alpha for test, alpha in self.alphas if test(module)), self.alpha)
        rank = self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)


def read_config(raw: bytes) -> LoraConfig:
    """Parses and checks; raises `AdapterRefused`. Its tests may raise `UnsafePattern` when their common
    budget is spent."""
    if len(raw) > MAX_CONFIG_BYTES:
        _refuse(
            RefusalCode.CONFIG_TOO_LARGE, f"the file has {len(raw)} bytes; the most is {MAX_CONFIG_BYTES}"
        )
    try:
        config = decode_object(raw)
    except InvalidJson as error:
        _refuse(RefusalCode.CONFIG_MALFORMED, f"the file is invalid: {error}")
    _check_kind(config)
    _check_unserved(config)
    try:
        return _lora_config(config, Budget())
    except UnsafePattern as error:
        _refuse(RefusalCode.UNSAFE_PATTERN, str(error))


def _check_kind(config: Mapping[str, Any]) -> None:
    peft_type = config.get("peft_type")
    if peft_type != "LORA":
        _refuse(
            RefusalCode.UNSUPPORTED_FEATURE, f"'peft_type' is {shown(peft_type)}; only \"LORA\" is served"
        )
    task = config.get("task_type")
    if task not in ("CAUSAL_LM", None):
        _refuse(
            RefusalCode.UNSUPPORTED_FEATURE, f"'task_type' is {shown(task)}; only \"CAUSAL_LM\" is served"
        )
    if config.get("bias", "none") != "none":
        _refuse(
            RefusalCode.UNSUPPORTED_FEATURE, f"'bias' is {shown(config['bias'])}; only \"none\" is served"
        )
    init = config.get("init_lora_weights")
    if not isinstance(init, bool | str | None) or init not in _INITS_THAT_KEEP_THE_BASE:
        _refuse(
            RefusalCode.UNSUPPORTED_FEATURE,
            f"'init_lora_weights' is {shown(init)}, which trains against changed base weights; convert the "
            "adapter to a plain LoRA (PEFT: save_pretrained with path_initial_model_for_weight_conversion) "
            "and set it to true",
        )


def _check_unserved(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if key in _HONOURED or key in _INERT or _asks_nothing(value):
            continue
        if key in _UNSERVED:
            _refuse(
                RefusalCode.UNSUPPORTED_FEATURE,
                f"{shown(key)} asks for {_UNSERVED[key]}, which is not served",
            )
        _refuse(
            RefusalCode.UNKNOWN_FIELD,
            f"{shown(key)} is not a field Motet knows, and its value {shown(value)} could change what the "
            "adapter means",
        )


def _asks_nothing(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _lora_config(config: Mapping[str, Any], budget: Budget) -> LoraConfig:
    ranks = _pattern_table(config, "rank_pattern", budget, _rank)
    alphas = _pattern_table(config, "alpha_pattern", budget, _alpha)
    return LoraConfig(
        rank=_rank("r", config.get("r", 8)),
        alpha=_alpha("lora_alpha", config.get("lora_alpha", 8)),
        use_rslora=_flag(config, "use_rslora"),
        ranks=tuple(ranks),
        alphas=tuple(alphas),
        targets=_targets(config, budget),
        excludes=tuple(
            test for _, test in _modules(config.get("exclude_modules"), "exclude_modules", budget)
        ),
        layers=_layers(config),
    )


def _targets(config: Mapping[str, Any], budget: Budget) -> tuple[tuple[str, Callable[[str], bool]], ...]:
    wanted = config.get("target_modules")
    if isinstance(wanted, str) and wanted.lower() == "all-linear":
        return tuple((site, _ends_with(site)) for site in SITES)
    targets = _modules(wanted, "target_modules", budget)
    if not targets:
        _refuse(RefusalCode.CONFIG_INVALID, "'target_modules' names no module")
    return targets


def _modules(value: Any, key: str, budget: Budget) -> tuple[tuple[str, Callable[[str], bool]], ...]:
    """PEFT's reading of module names: a string is a pattern for the whole name, a list holds ends of
    names."""
    if value is None or value in ("", []):
        return ()
    if isinstance(value, str):
        return ((value, compile_pattern(value, budget)),)
    if not isinstance(value, list) or not all(
        isinstance(item, str) and 0 < len(item) <= 256 for item in value
    ):
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' must be a list of names or a pattern")
    if len(value) > MAX_PATTERNS:
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' has {len(value)} entries; the most is {MAX_PATTERNS}")
    return tuple((item, _ends_with(item)) for item in value)


def _ends_with(name: str) -> Callable[[str], bool]:
    return lambda module: module == name or module.endswith(f".{name}")


def _pattern_table(
    config: Mapping[str, Any], key: str, budget: Budget, read: Callable[[str, Any], Any]
) -> list[tuple[Callable[[str], bool], Any]]:
    """A table of patterns in the file's order, where the first that matches wins."""
    table = config.get(key) or {}
    if not isinstance(table, dict):
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' must map patterns to numbers")
    if len(table) > MAX_PATTERNS:
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' has {len(table)} entries; the most is {MAX_PATTERNS}")
    return [
        (compile_pattern(pattern, budget, below=True), read(f"{key}[{shown(pattern)}]", value))
        for pattern, value in table.items()
    ]


def _layers(config: Mapping[str, Any]) -> frozenset[int] | None:
    wanted, patterns = config.get("layers_to_transform"), config.get("layers_pattern")
    if wanted is None or wanted == []:
        if patterns:
            _refuse(RefusalCode.CONFIG_INVALID, "'layers_pattern' is set without 'layers_to_transform'")
        return None
    if isinstance(config.get("target_modules"), str):
        _refuse(RefusalCode.CONFIG_INVALID, "'layers_to_transform' needs 'target_modules' to be a list")
    layers = wanted if isinstance(wanted, list) else [wanted]
    if not all(type(layer) is int and layer >= 0 for layer in layers):
        _refuse(RefusalCode.CONFIG_INVALID, f"'layers_to_transform' is {shown(wanted)}, not layer numbers")
    names = [patterns] if isinstance(patterns, str) else (patterns or [])
    if not isinstance(names, list) or any(name != "layers" for name in names):
        _refuse(
            RefusalCode.UNSUPPORTED_FEATURE,
            f"'layers_pattern' is {shown(patterns)}; every base served here calls its layers \"layers\"",
        )
    return frozenset(layers)


def _rank(key: str, value: Any) -> int:
    if type(value) is not int:
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' is {shown(value)}, not an integer")
    if not 1 <= value <= MAX_RANK:
        _refuse(
            RefusalCode.RANK_OUT_OF_RANGE, f"'{key}' is {shown(value)}; ranks from 1 to {MAX_RANK} are served"
        )
    return value


def _alpha(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_ALPHA:
        _refuse(
            RefusalCode.CONFIG_INVALID, f"'{key}' is {shown(value)}, not a number of at most {MAX_ALPHA:.0f}"
        )
    return float(value)


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        _refuse(RefusalCode.CONFIG_INVALID, f"'{key}' is {shown(value)}, not true or false")
    return bool(value)


def _refuse(code: RefusalCode, message: str) -> NoReturn:
    raise AdapterRefused(code, message, CONFIG)
