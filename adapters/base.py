"""What a base model is to adapters and prompts: its architecture, shapes, context and tokenizer, read without
torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

SITES: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers an adapter may change, in the order in which packed files hold them."""

ATTENTION_SITES: Final = frozenset(SITES[:4])

ARCHITECTURES: Final = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
"""Decoders whose layers have exactly the seven sites under the names above."""

MAX_CONFIG_BYTES: Final = 1024 * 1024
MAX_TOKENIZER_BYTES: Final = 256 * 1024 * 1024


class UnsupportedBase(Exception):
    """The folder holds no base model that Motet knows; the message names what is wrong."""


class BaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A base model without its weights. `sites` gives (inputs, outputs) of each linear site of every
    layer."""

    name: str
    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int  # most tokens of prompt and answer together
    eos_ids: tuple[int, ...]
    tokenizer_digest: str  # sha256 of tokenizer.json, 64 hex
    longest_token_bytes: (
        int | None
    )  # most UTF-8 bytes of text one token can stand for; None = no bound is known

    @classmethod
    def from_dir(cls, path: str | Path, name: str) -> BaseSpec:
        """Reads a Hugging Face folder; raises `UnsupportedBase`."""
        folder = Path(path)
        config = _read_json(folder / "config.json", MAX_CONFIG_BYTES)
        architecture = (config.get("architectures") or ["none"])[0]
        if architecture not in ARCHITECTURES:
            raise UnsupportedBase(
                f"architecture {architecture!r} is not one of {', '.join(sorted(ARCHITECTURES))}"
            )
        tokenizer = _read_bytes(folder / "tokenizer.json", MAX_TOKENIZER_BYTES)
        hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
        return cls(
            name=name,
            architecture=architecture,
            num_layers=_count(config, "num_hidden_layers"),
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=_count(config, "num_key_value_heads", heads),
            head_dim=_count(config, "head_dim", hidden // heads),
            intermediate_size=_count(config, "intermediate_size"),
            vocab_size=_count(config, "vocab_size"),
            max_model_len=_count(config, "max_position_embeddings"),
            eos_ids=_eos_ids(folder, config),
            tokenizer_digest=hashlib.sha256(tokenizer).hexdigest(),
            longest_token_bytes=longest_token_bytes(msgspec.json.decode(tokenizer)),
        )

    @property
    def sites(self) -> dict[str, tuple[int, int]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            "q_proj": (hidden, queries),
            "k_proj": (hidden, keys),
            "v_proj": (hidden, keys),
            "o_proj": (queries, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def base_id(self) -> str:
        """sha256 (64 hex) of what makes an adapter or a prompt fit: architecture, shapes, tokenizer, declared
        name. Weights, dtype and context length may change under one id."""
        facts = {
            "motet": "base/1",
            "name": self.name,
            "architecture": self.architecture,
            "layers": self.num_layers,
            "heads": [self.num_heads, self.num_kv_heads, self.head_dim],
            "sites": {site: list(shape) for site, shape in self.sites.items()},
            "vocabulary": self.vocab_size,
            "tokenizer": self.tokenizer_digest,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def module_name(layer: int, site: str) -> str:
    """The name that PEFT matches patterns against, as the modules of the base are called."""
    return f"model.layers.{layer}.{'self_attn' if site in ATTENTION_SITES else 'mlp'}.{site}"


def longest_token_bytes(tokenizer: Mapping[str, Any]) -> int | None:
    """The most bytes of UTF-8 text that one token of this tokenizer.json can stand for, or None where no
    bound can be proved: an unknown token or a padded special token swallows text of any length."""
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    if model.get("type") != "BPE" or any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None
    special = max((len(token["content"].encode()) for token in added), default=1)
    shrink = _most_shrinking(tokenizer.get("normalizer"))
    if shrink is None:
        return None
    if _is_byte_level(tokenizer.get("pre_tokenizer")):  # each character of a token stands for one byte
        return max(special, shrink * max(map(len, model["vocab"]), default=1))
    if model.get("byte_fallback"):
        return max(
            special, shrink * max((len(t.replace("▁", " ").encode()) for t in model["vocab"]), default=1)
        )
    return None


def _is_byte_level(part: Mapping[str, Any] | None) -> bool:
    if part is None:
        return False
    if part.get("type") == "Sequence":
        return any(_is_byte_level(inner) for inner in part["pretokenizers"])
    return part.get("type") == "ByteLevel"


def _most_shrinking(normalizer: Mapping[str, Any] | None) -> int | None:
    """How many times shorter (in bytes) a normalizer can make a text; None = without bound."""
    if normalizer is None or normalizer.get("type") == "Prepend":
        return 1
    if normalizer["type"] == "Sequence":
        factor = 1
        for inner in normalizer["normalizers"]:
            shrink = _most_shrinking(inner)
            if shrink is None:
                return None
            factor *= shrink
        return factor
    if normalizer["type"] == "NFC":
        return (
            3  # Unicode's bound for composition in UTF-8: three Hangul jamo (9 bytes) become one syllable (3)
        )
    if (
        normalizer["type"] == "Replace"
        and normalizer["pattern"] == {"String": " "}
        and normalizer["content"] == "▁"
    ):
        return 1
    return None


def _eos_ids(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """End tokens as generation would use them: generation_config.json wins over config.json."""
    generation = folder / "generation_config.json"
    found = _read_json(generation, MAX_CONFIG_BYTES).get("eos_token_id") if generation.exists() else None
    ids = found if found is not None else config.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnsupportedBase(f"config.json: {key!r} must be a positive integer, not {value!r}")
    return value


def _read_json(path: Path, most: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(_read_bytes(path, most))
    except msgspec.DecodeError as error:
        raise UnsupportedBase(f"{path.name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UnsupportedBase(f"{path.name} is not a JSON object")
    return value


def _read_bytes(path: Path, most: int) -> bytes:
    try:
        if path.stat().st_size > most:
            raise UnsupportedBase(f"{path.name} is larger than {most} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UnsupportedBase(f"{path.name} can't be read from {path.parent}: {error.strerror}") from None
