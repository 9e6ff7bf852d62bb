"""What a Hugging Face `config.json` says of a Llama-family model; whatever it says that we don't honour is
refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.model.fp8_checkpoint import Fp8Checkpoint, UnknownQuantization, read_quantization
from engine.model.rope import Rope, read_rope


class ModelRefused(Exception):
    """The model folder can't be served as it stands; the message names the field, tensor or file."""


ARCHITECTURES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}

_USED = {
    "architectures", "attention_bias", "eos_token_id", "head_dim", "hidden_act", "hidden_size",
    "intermediate_size", "layer_types", "max_position_embeddings", "mlp_bias", "num_attention_heads",
    "num_hidden_layers", "num_key_value_heads", "partial_rotary_factor", "quantization_config",
    "rms_norm_eps", "rope_interleaved", "rope_parameters", "rope_scaling", "rope_theta", "sliding_window",
    "tie_word_embeddings", "use_sliding_window", "vocab_size",
}  # fmt: skip
# Fields that change nothing of an answer: training, bookkeeping, tokens that are never added here.
_NEUTRAL = {
    "_attn_implementation", "_attn_implementation_autoset", "_model_name_or_path", "_name_or_path",
    "attention_dropout", "bos_token_id", "chunk_size_feed_forward", "dtype", "id2label",
    "initializer_range", "is_encoder_decoder", "is_llama_config", "label2id", "max_window_layers",
    "model_type", "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp",
    "problem_type", "return_dict", "torch_dtype", "transformers.js_config", "transformers_version",
    "unk_token_id", "use_cache",
}  # fmt: skip
USUAL_WINDOW = 4096  # what an absent `sliding_window` means to all of them but Llama


@dataclass(frozen=True)
class ModelConfig:
    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    norm_eps: float
    rope: Rope
    tied_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    head_norms: bool  # Qwen3: an RMS norm on each head of q and k
    sliding_window: int | None  # in use by at least one layer
    eos_token_ids: tuple[int, ...]
    fp8: Fp8Checkpoint | None = None  # how the checkpoint's weights were quantized

    @property
    def sites(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the seven linear sites of a layer."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        hidden, inner = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (hidden, q),
            "k_proj": (hidden, kv),
            "v_proj": (hidden, kv),
            "o_proj": (q, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    def check_context(self, max_model_len: int) -> None:
        """Raises `ModelRefused` where so long a context would not be computed as the model means it."""
        if self.sliding_window is not None and max_model_len > self.sliding_window:
            raise ModelRefused(
                f"sliding_window {self.sliding_window} is shorter than the context of {max_model_len}; "
                f"serve it with a context of at most {self.sliding_window}"
            )
        if max_model_len > self.max_position_embeddings:
            raise ModelRefused(
                f"a context of {max_model_len} is over max_position_embeddings {self.max_position_embeddings}"
            )


def read_config(model_dir: Path) -> ModelConfig:
    """Reads `config.json` (and the end tokens of `generation_config.json`). Raises `ModelRefused`."""
    raw = _read_json(model_dir / "config.json")
    generation = model_dir / "generation_config.json"
    eos = _read_json(generation).get("eos_token_id") if generation.exists() else None
    return parse_config(raw, eos)


def parse_config(raw: Mapping[str, Any], generation_eos: object = None) -> ModelConfig:
    architecture = _architecture(raw)
    unknown = sorted(
        name for name, value in raw.items() if name not in _USED | _NEUTRAL and value is not None
    )
    if unknown:
        raise ModelRefused(f"config.json has fields that this engine does not know: {', '.join(unknown)}")
    _refuse_what_bites(raw)
    num_heads, hidden = _positive(raw, "num_attention_heads"), _positive(raw, "hidden_size")
    qwen2, qwen3 = architecture == "Qwen2ForCausalLM", architecture == "Qwen3ForCausalLM"
    head_dim = _positive(raw, "head_dim") if raw.get("head_dim") is not None else hidden // num_heads
    config = ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size"),
        num_layers=_positive(raw, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_kv_heads(raw, architecture, num_heads),
        head_dim=head_dim,
        vocab_size=_positive(raw, "vocab_size"),
        max_position_embeddings=_positive(raw, "max_position_embeddings"),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw, head_dim),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=qwen2 or bool(raw.get("attention_bias", False)),
        o_bias=not qwen2 and bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        head_norms=qwen3,
        sliding_window=_sliding_window(raw, architecture),
        eos_token_ids=_token_ids(generation_eos if generation_eos is not None else raw.get("eos_token_id")),
        fp8=_quantization(raw),
    )
    if num_heads % config.num_kv_heads or head_dim % 2:
        raise ModelRefused(
            f"num_attention_heads {num_heads}, num_key_value_heads {config.num_kv_heads} and "
            f"head_dim {head_dim} do not fit together"
        )
    if any(token >= config.vocab_size for token in config.eos_token_ids):
        raise ModelRefused(
            f"eos_token_id {list(config.eos_token_ids)} is outside the vocabulary of {config.vocab_size}"
        )
    return config


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1:
        raise ModelRefused(f"config.json must name one architecture, not {names!r}")
    if names[0] not in ARCHITECTURES:
        raise ModelRefused(
            f"architecture {names[0]!r} is not served; known: {', '.join(sorted(ARCHITECTURES))}"
        )
    return str(names[0])


def _refuse_what_bites(raw: Mapping[str, Any]) -> None:
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelRefused(f"hidden_act {raw['hidden_act']!r} is not served; only 'silu' is")
    if raw.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise ModelRefused(f"partial_rotary_factor {raw['partial_rotary_factor']} is not served")
    if raw.get("rope_interleaved"):
        raise ModelRefused("rope_interleaved is not served")
    odd = set(raw.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    if odd:
        raise ModelRefused(f"layer_types {', '.join(map(repr, sorted(map(str, odd))))} are not served")


def _rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    try:
        return read_rope(raw, head_dim)
    except ValueError as error:
        raise ModelRefused(str(error)) from error


def _quantization(raw: Mapping[str, Any]) -> Fp8Checkpoint | None:
    if raw.get("quantization_config") is None:
        return None
    try:
        return read_quantization(raw["quantization_config"])
    except UnknownQuantization as error:
        raise ModelRefused(f"quantization_config: {error}") from error


def _kv_heads(raw: Mapping[str, Any], architecture: str, num_heads: int) -> int:
    if raw.get("num_key_value_heads") is None and architecture == "LlamaForCausalLM":
        return num_heads  # Llama 1 and 2 had no such field
    return _positive(raw, "num_key_value_heads")


def _sliding_window(raw: Mapping[str, Any], architecture: str) -> int | None:
    window = raw.get("sliding_window", None if architecture.startswith("Llama") else USUAL_WINDOW)
    if window is None:
        return None
    layer_types = raw.get("layer_types")
    if layer_types is not None and "sliding_attention" not in layer_types and architecture[:7] != "Mistral":
        return None  # Mistral has no such field: its window is that of all layers
    if architecture.startswith("Qwen") and not raw.get("use_sliding_window", False):
        return None
    return _positive({"sliding_window": window}, "sliding_window")


def _token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and i >= 0 for i in ids):
        raise ModelRefused(f"eos_token_id {value!r} is not a token id")
    return tuple(ids)


def _positive(raw: Mapping[str, Any], name: str) -> int:
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelRefused(f"config.json: {name} must be a positive number, not {value!r}")
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelRefused(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelRefused(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelRefused(f"{path} does not hold an object")
    return found
