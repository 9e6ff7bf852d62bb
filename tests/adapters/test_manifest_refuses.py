"""Hostile and odd uploads. Each is refused with its own code, names what is wrong, and reads no tensor."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adapters import peft_config, safetensors_header
from adapters.manifest import read_manifest
from adapters.refused import CONFIG, WEIGHTS, AdapterRefused, Part
from adapters.refused import RefusalCode as Code
from tests.adapters.damage import (
    A0,
    A1,
    B0,
    add,
    config,
    doubled_header,
    entry,
    file,
    header,
    rank_of_q0,
    raw_config,
    remove,
    rename,
    shape,
    shift,
    torch_zip,
    with_header,
)
from tests.adapters.uploads import PREFIX, TINY, Blob, Upload, encode, upload

C, W = CONFIG, WEIGHTS
CASES: dict[str, tuple[Callable[[Upload], None], Code, Part, str]] = {
    # the config as a file
    "config too large": (
        raw_config(b" " * (peft_config.MAX_CONFIG_BYTES + 1)),
        Code.CONFIG_TOO_LARGE,
        C,
        "most is",
    ),
    "config not JSON": (raw_config(b"r = 8"), Code.CONFIG_MALFORMED, C, "Expecting value"),
    "config empty": (raw_config(b""), Code.CONFIG_MALFORMED, C, "invalid"),
    "config a list": (raw_config(b"[]"), Code.CONFIG_MALFORMED, C, "not a JSON object"),
    "config not UTF-8": (raw_config(b'{"r": "\xff"}'), Code.CONFIG_MALFORMED, C, "UTF-8"),
    "config with a key twice": (raw_config(b'{"r": 8, "r": 16}'), Code.CONFIG_MALFORMED, C, "twice"),
    "config with NaN": (
        raw_config(b'{"peft_type": "LORA", "lora_alpha": NaN}'),
        Code.CONFIG_MALFORMED,
        C,
        "NaN",
    ),
    "config nested deeply": (raw_config(b'{"a":' * 200_000), Code.CONFIG_MALFORMED, C, "nested"),
    "config with a huge integer": (
        raw_config(b'{"r": ' + b"9" * 5000 + b"}"),
        Code.CONFIG_MALFORMED,
        C,
        "digits",
    ),
    "config followed by more": (raw_config(b"{} {}"), Code.CONFIG_MALFORMED, C, "Extra data"),
    # what it asks for
    "another method": (config(peft_type="IA3"), Code.UNSUPPORTED_FEATURE, C, "peft_type"),
    "no method": (config(peft_type=None), Code.UNSUPPORTED_FEATURE, C, "peft_type"),
    "another task": (config(task_type="SEQ_CLS"), Code.UNSUPPORTED_FEATURE, C, "task_type"),
    "biases": (config(bias="all"), Code.UNSUPPORTED_FEATURE, C, "bias"),
    "DoRA": (config(use_dora=True), Code.UNSUPPORTED_FEATURE, C, "DoRA"),
    "modules saved whole": (
        config(modules_to_save=["lm_head"]),
        Code.UNSUPPORTED_FEATURE,
        C,
        "modules_to_save",
    ),
    "trained tokens": (config(trainable_token_indices=[5]), Code.UNSUPPORTED_FEATURE, C, "trained tokens"),
    "LoRA biases": (config(lora_bias=True), Code.UNSUPPORTED_FEATURE, C, "lora_bias"),
    "transposed weights": (config(fan_in_fan_out=True), Code.UNSUPPORTED_FEATURE, C, "fan_in_fan_out"),
    "repeated layers": (
        config(layer_replication=[[0, 2], [1, 3]]),
        Code.UNSUPPORTED_FEATURE,
        C,
        "replication",
    ),
    "activated LoRA": (config(alora_invocation_tokens=[1]), Code.UNSUPPORTED_FEATURE, C, "activated"),
    "QALoRA": (config(use_qalora=True), Code.UNSUPPORTED_FEATURE, C, "QALoRA"),
    "Megatron": (config(megatron_config={"tp": 2}), Code.UNSUPPORTED_FEATURE, C, "Megatron"),
    "expert parameters": (
        config(target_parameters=["experts.w"]),
        Code.UNSUPPORTED_FEATURE,
        C,
        "target_parameters",
    ),
    "PiSSA": (config(init_lora_weights="pissa"), Code.UNSUPPORTED_FEATURE, C, "init_lora_weights"),
    "a number as init": (config(init_lora_weights=1), Code.UNSUPPORTED_FEATURE, C, "init_lora_weights"),
    "a field of tomorrow": (config(use_newlora={"x": 1}), Code.UNKNOWN_FIELD, C, "use_newlora"),
    "a flag as zero": (config(use_newlora=0), Code.UNKNOWN_FIELD, C, "use_newlora"),
    "layers by another name": (
        config(layers_to_transform=[0, 1, 2], layers_pattern="h"),
        Code.UNSUPPORTED_FEATURE,
        C,
        "layers_pattern",
    ),
    # values PEFT could not mean
    "rank 0": (config(r=0), Code.RANK_OUT_OF_RANGE, C, "from 1 to 256"),
    "rank 257": (config(r=257), Code.RANK_OUT_OF_RANGE, C, "from 1 to 256"),
    "rank in a string": (config(r="8"), Code.CONFIG_INVALID, C, "not an integer"),
    "rank true": (config(r=True), Code.CONFIG_INVALID, C, "not an integer"),
    "rank 4.0": (config(r=4.0), Code.CONFIG_INVALID, C, "not an integer"),
    "alpha in a string": (config(lora_alpha="16"), Code.CONFIG_INVALID, C, "lora_alpha"),
    "alpha beyond measure": (config(lora_alpha=1e30), Code.CONFIG_INVALID, C, "lora_alpha"),
    "alpha infinite": (
        raw_config(b'{"peft_type": "LORA", "lora_alpha": 1e999}'),
        Code.CONFIG_INVALID,
        C,
        "lora_alpha",
    ),
    "rank pattern a list": (config(rank_pattern=["q_proj"]), Code.CONFIG_INVALID, C, "rank_pattern"),
    "rank pattern beyond": (config(rank_pattern={"q_proj": 999}), Code.RANK_OUT_OF_RANGE, C, "q_proj"),
    "rsLoRA in a string": (config(use_rslora="yes"), Code.CONFIG_INVALID, C, "use_rslora"),
    "no targets": (config(target_modules=[]), Code.CONFIG_INVALID, C, "target_modules"),
    "targets of numbers": (config(target_modules=[1, 2]), Code.CONFIG_INVALID, C, "target_modules"),
    "layers -1": (config(layers_to_transform=[-1]), Code.CONFIG_INVALID, C, "layers_to_transform"),
    "layers beside a pattern": (
        config(layers_to_transform=[0], target_modules=".*"),
        Code.CONFIG_INVALID,
        C,
        "layers_to_transform",
    ),
    "layers pattern alone": (config(layers_pattern="layers"), Code.CONFIG_INVALID, C, "layers_pattern"),
    # patterns as weapons
    "look-ahead": (config(target_modules="(?!x).*"), Code.UNSAFE_PATTERN, C, "look-around"),
    "back-reference": (config(rank_pattern={r"(q)\1": 8}), Code.UNSAFE_PATTERN, C, "escape"),
    "pattern too long": (config(target_modules="a" * 5000), Code.UNSAFE_PATTERN, C, "characters"),
    "pattern that explodes": (
        config(target_modules="((a{1,900}){1,900}){1,900}"),
        Code.UNSAFE_PATTERN,
        C,
        "states",
    ),
    "pattern unbalanced": (config(target_modules="(q_proj"), Code.UNSAFE_PATTERN, C, "ends too early"),
    "pattern nested": (config(target_modules="(" * 200 + ")" * 200), Code.UNSAFE_PATTERN, C, "nested"),
    # the file
    "empty file": (file(lambda raw: b""), Code.NOT_SAFETENSORS, W, "short"),
    "a pickle": (file(lambda raw: pickle.dumps({"a": 1}, protocol=4)), Code.NOT_SAFETENSORS, W, "pickle"),
    "a torch zip": (file(torch_zip), Code.NOT_SAFETENSORS, W, "pickle"),
    "header longer than the file": (
        file(lambda raw: b"\xff" * 7 + b"\x00" + raw),
        Code.HEADER_MALFORMED,
        W,
        "more than",
    ),
    "header over its cap": (
        file(lambda raw: (2**24 + 1).to_bytes(8, "little") + b"{" + b" " * 2**24),
        Code.HEADER_MALFORMED,
        W,
        "most is",
    ),
    "header not an object": (file(with_header(b"[1, 2]")), Code.NOT_SAFETENSORS, W, "'{'"),
    "header not JSON": (file(with_header(b"{x}")), Code.HEADER_MALFORMED, W, "invalid"),
    "header without tensors": (file(with_header(b"{}")), Code.HEADER_MALFORMED, W, "no tensors"),
    "header with a tensor twice": (file(doubled_header), Code.HEADER_MALFORMED, W, "twice"),
    "header with too many tensors": (
        header(lambda h: h.update({f"t{i}": h[A0] for i in range(safetensors_header.MAX_TENSORS)})),
        Code.HEADER_MALFORMED,
        W,
        "most is",
    ),
    "metadata not strings": (
        header(lambda h: h.update(__metadata__={"n": 1})),
        Code.HEADER_MALFORMED,
        W,
        "metadata",
    ),
    "an entry with more": (header(entry(A0, extra=1)), Code.HEADER_MALFORMED, W, "nothing else"),
    "an entry that is a list": (header(lambda h: h.update({A0: []})), Code.HEADER_MALFORMED, W, "dtype"),
    "file cut": (file(lambda raw: raw[:-1]), Code.BAD_OFFSETS, W, "ends before"),
    "bytes after the end": (file(lambda raw: raw + b"MZ"), Code.BAD_OFFSETS, W, "goes on"),
    "overlapping tensors": (header(shift(B0, -2)), Code.BAD_OFFSETS, W, "overlaps"),
    "a gap": (header(shift(A1, 2)), Code.BAD_OFFSETS, W, "gap"),
    "offsets beyond the file": (header(shift(A0, 10**9)), Code.BAD_OFFSETS, W, "gap"),
    "offsets negative": (header(entry(A0, data_offsets=[-128, 0])), Code.BAD_OFFSETS, W, "data_offsets"),
    "offsets backwards": (header(entry(A0, data_offsets=[128, 0])), Code.BAD_OFFSETS, W, "data_offsets"),
    "offsets of floats": (header(entry(A0, data_offsets=[0.0, 128.0])), Code.BAD_OFFSETS, W, "data_offsets"),
    "offsets that differ from the shape": (
        header(entry(A0, shape=[4, 15])),
        Code.BAD_OFFSETS,
        W,
        "by its shape",
    ),
    "a shape beyond all memory": (
        header(entry(A0, shape=[2**40, 2**40])),
        Code.BAD_OFFSETS,
        W,
        "by its shape",
    ),
    "a shape with a zero": (header(entry(A0, shape=[0, 16])), Code.HEADER_MALFORMED, W, "matrix"),
    "a vector": (header(entry(A0, shape=[64])), Code.HEADER_MALFORMED, W, "matrix"),
    "int8": (header(entry(A0, dtype="I8")), Code.BAD_DTYPE, W, "I8"),
    "float64": (header(entry(A0, dtype="F64")), Code.BAD_DTYPE, W, "F64"),
    "a dtype that is a list": (header(entry(A0, dtype=[])), Code.BAD_DTYPE, W, "dtype"),
    # its tensors
    "a path as name": (rename(A0, "../../x"), Code.UNKNOWN_TENSOR, W, "../../x"),
    "a name of another library": (rename(A0, "lora_te_text_model.alpha"), Code.UNKNOWN_TENSOR, W, "lora_te"),
    "a name without end": (rename(A0, "x" * 10_000), Code.HEADER_MALFORMED, W, "characters"),
    "a DoRA magnitude": (
        add(f"{PREFIX}model.layers.0.self_attn.q_proj.lora_magnitude_vector"),
        Code.UNKNOWN_TENSOR,
        W,
        "DoRA",
    ),
    "an embedding": (
        add(f"{PREFIX}model.embed_tokens.lora_embedding_A"),
        Code.UNKNOWN_TENSOR,
        W,
        "embedding",
    ),
    "a site that isn't": (rename(A0, A0.replace("q_proj", "w_proj")), Code.UNKNOWN_TENSOR, W, "w_proj"),
    "a site in the wrong block": (
        rename(A0, A0.replace("self_attn", "mlp")),
        Code.UNKNOWN_TENSOR,
        W,
        "block",
    ),
    "layer 00": (rename(A0, A0.replace(".0.", ".00.")), Code.UNKNOWN_TENSOR, W, "layers.00"),
    "an adapter of another name": (
        rename(A0, A0.replace(".weight", ".evil.weight")),
        Code.UNKNOWN_TENSOR,
        W,
        "evil",
    ),
    "one factor under two names": (
        add(A0.replace(".weight", ".default.weight")),
        Code.DUPLICATE_TENSOR,
        W,
        "same factor twice",
    ),
    "A without B": (remove(B0), Code.MISSING_PAIR, W, "no lora_B"),
    "B without A": (remove(A0), Code.MISSING_PAIR, W, "no lora_A"),
    "rank 257 in the tensors": (
        rank_of_q0(257),
        Code.RANK_OUT_OF_RANGE,
        W,
        "257",
    ),
    "rank other than declared": (
        rank_of_q0(8),
        Code.RANK_MISMATCH,
        W,
        "declares rank 4",
    ),
    "A and B of two ranks": (shape(B0, (16, 5)), Code.RANK_MISMATCH, W, "rank 5"),
    # another base
    "inputs of another base": (shape(A0, (4, 32)), Code.BASE_MISMATCH, W, "takes 16 inputs"),
    "outputs of another base": (shape(B0, (32, 4)), Code.BASE_MISMATCH, W, "gives 16 outputs"),
    "more layers than the base": (
        rename(A0, A0.replace(".0.", ".3.")),
        Code.BASE_MISMATCH,
        W,
        "has 3 layers",
    ),
    # config against tensors
    "a target of nothing": (
        config(target_modules=["q_proj", "v_proj", "up_proj"]),
        Code.TARGET_WITHOUT_TENSOR,
        W,
        "up_proj",
    ),
    "a target outside the layers": (
        config(target_modules=["q_proj", "v_proj", "lm_head"]),
        Code.TARGET_WITHOUT_TENSOR,
        W,
        "lm_head",
    ),
    "tensors of no target": (
        config(target_modules=["q_proj"]),
        Code.TENSOR_WITHOUT_TARGET,
        W,
        "does not target",
    ),
    "tensors of other layers": (config(layers_to_transform=[0]), Code.TENSOR_WITHOUT_TARGET, W, "layers.1"),
    "tensors of excluded modules": (
        config(exclude_modules=["v_proj"]),
        Code.TENSOR_WITHOUT_TARGET,
        W,
        "v_proj",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path: Path, case: str) -> None:
    damage, code, part, says = CASES[case]
    bad = upload()
    damage(bad)
    weights = bad.write(tmp_path)
    with pytest.raises(AdapterRefused) as refused:
        read_manifest(bad.config_bytes(), weights, TINY)
    assert (refused.value.code, refused.value.part) == (code, part), refused.value.message
    assert says in refused.value.message
    assert len(refused.value.message) < 600


def test_a_file_over_its_cap_is_refused_unread(tmp_path: Path) -> None:
    bad = upload()
    weights = bad.write(tmp_path)
    with pytest.raises(AdapterRefused, match="the most is 100") as refused:
        read_manifest(bad.config_bytes(), weights, TINY, max_weights_bytes=100)
    assert refused.value.code is Code.WEIGHTS_TOO_LARGE


@pytest.mark.parametrize(
    "pattern", ["(a+)+x", "(.*)*y", "(model|m.*l)*" * 8, "(.*.*.*.*.*.*.*.*)+q", "(a?){900}z"]
)
def test_patterns_that_would_hang_a_backtracking_matcher_end_soon(tmp_path: Path, pattern: str) -> None:
    bad = upload({(layer, "q_proj"): 4 for layer in range(3)}, target_modules=pattern)
    weights = bad.write(tmp_path)
    start = time.perf_counter()
    with pytest.raises(AdapterRefused):
        read_manifest(bad.config_bytes(), weights, TINY)
    assert time.perf_counter() - start < 5.0


def test_values_are_not_read(tmp_path: Path) -> None:
    """The header alone decides here: NaN is the value check's to find."""
    odd = upload()
    odd.tensors[A0] = Blob("F32", (4, 16), encode(np.full((4, 16), np.nan), "F32"))
    assert len(odd.manifest(tmp_path).modules) == 6
