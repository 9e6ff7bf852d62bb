"""Why an uploaded adapter can't be served: a closed list of codes, a sentence, and the part of the upload it
is about."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Part = Literal["adapter_config.json", "adapter_model.safetensors"]
CONFIG: Part = "adapter_config.json"
WEIGHTS: Part = "adapter_model.safetensors"


class RefusalCode(StrEnum):
    """Stable names, shown in the API. Adding one is a change of docs/API.md."""

    CONFIG_TOO_LARGE = "config_too_large"
    CONFIG_MALFORMED = "config_malformed"  # not UTF-8 JSON, not an object, a key twice
    CONFIG_INVALID = "config_invalid"  # a known field with a value that PEFT could not mean
    UNKNOWN_FIELD = "unknown_field"  # a field we don't know, set to something
    UNSUPPORTED_FEATURE = "unsupported_feature"  # a known field that asks for what we don't serve
    UNSAFE_PATTERN = "unsafe_pattern"  # a regular expression outside what we evaluate
    WEIGHTS_TOO_LARGE = "weights_too_large"
    NOT_SAFETENSORS = "not_safetensors"
    HEADER_MALFORMED = "header_malformed"
    BAD_OFFSETS = "bad_offsets"
    BAD_DTYPE = "bad_dtype"
    UNKNOWN_TENSOR = "unknown_tensor"
    DUPLICATE_TENSOR = "duplicate_tensor"
    MISSING_PAIR = "missing_pair"  # lora_A without lora_B, or the reverse
    RANK_OUT_OF_RANGE = "rank_out_of_range"
    RANK_MISMATCH = "rank_mismatch"  # the tensors' rank is not the one the config declares
    BASE_MISMATCH = "base_mismatch"  # made for a model of other shapes
    TARGET_WITHOUT_TENSOR = "target_without_tensor"
    TENSOR_WITHOUT_TARGET = "tensor_without_target"
    NOT_FINITE = "not_finite"  # NaN or infinity among the values
    NO_EFFECT = "no_effect"  # would answer exactly as the base does


class AdapterRefused(Exception):
    """The upload can't be served as it stands; uploading the same bytes again gives the same answer."""

    def __init__(self, code: RefusalCode, message: str, part: Part) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.part = part
