from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import proof
from adapters.proof import ProofUnavailable, prove, prove_values
from adapters.refused import AdapterRefused, RefusalCode
from tests.adapters.uploads import TINY, Blob, Upload, encode, factor_names, upload

A0, B0 = factor_names(0, "q_proj")


def put(given: Upload, name: str, at: tuple[int, int], value: float) -> None:
    blob = given.tensors[name]
    values = np.ones(blob.shape, np.float32)
    values[at] = value
    given.tensors[name] = Blob(blob.dtype, blob.shape, encode(values, blob.dtype))


def zero(given: Upload, which: Callable[[str], bool]) -> None:
    for name, blob in given.tensors.items():
        if which(name):
            given.tensors[name] = Blob(blob.dtype, blob.shape, bytes(len(blob.data)))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [A0, B0])
def test_a_value_that_is_no_number(tmp_path: Path, dtype: str, value: float, name: str) -> None:
    bad = upload(dtype=dtype)
    put(bad, name, (2, 3), value)
    manifest = bad.manifest(tmp_path)
    with pytest.raises(AdapterRefused, match=r"first at \[2, 3\]") as refused:
        prove_values(tmp_path / "adapter_model.safetensors", manifest)
    assert refused.value.code is RefusalCode.NOT_FINITE
    assert name in refused.value.message


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_the_largest_and_smallest_numbers_pass(tmp_path: Path, dtype: str) -> None:
    good = upload(dtype=dtype)
    largest = {"F32": 3.4028234e38, "F16": 65504.0, "BF16": 3.3895314e38}[dtype]
    put(good, A0, (0, 0), largest)
    put(good, B0, (0, 0), -largest)
    manifest = good.manifest(tmp_path)
    prove_values(tmp_path / "adapter_model.safetensors", manifest)
    assert manifest.max_rank == 4


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_figures_of_a_module_are_those_of_its_values(tmp_path: Path, dtype: str) -> None:
    good = upload(dtype=dtype)
    put(good, A0, (0, 1), -2.5)
    put(good, B0, (0, 0), 0.0)
    manifest = good.manifest(tmp_path)
    first, module = prove_values(tmp_path / "adapter_model.safetensors", manifest)[0], manifest.modules[0]
    assert (first.layer, first.site, first.rank, first.scale) == (0, "q_proj", module.rank, module.scale)
    num_a, num_b = (shape[0] * shape[1] for shape in (module.lora_a.shape, module.lora_b.shape))
    assert first.a_norm == pytest.approx((num_a - 1 + 2.5**2) ** 0.5)
    assert first.b_norm == pytest.approx((num_b - 1) ** 0.5)
    assert first.delta_bound == pytest.approx(abs(module.scale) * first.a_norm * first.b_norm)
    assert first.largest == 2.5


@pytest.mark.parametrize(
    "which",
    [
        lambda name: "lora_B" in name,
        lambda name: "lora_A" in name,
        lambda name: ("lora_A" in name) == ("q_proj" in name),
        lambda name: True,
    ],
)
def test_an_adapter_that_changes_nothing(tmp_path: Path, which: Callable[[str], bool]) -> None:
    bad = upload()
    zero(bad, which)
    manifest = bad.manifest(tmp_path)
    with pytest.raises(AdapterRefused) as refused:
        prove_values(tmp_path / "adapter_model.safetensors", manifest)
    assert refused.value.code is RefusalCode.NO_EFFECT


def test_negative_zero_is_zero(tmp_path: Path) -> None:
    bad = upload()
    for name, blob in bad.tensors.items():
        bad.tensors[name] = Blob(blob.dtype, blob.shape, encode(np.full(blob.shape, -0.0), blob.dtype))
    manifest = bad.manifest(tmp_path)
    with pytest.raises(AdapterRefused, match="exactly as the base does"):
        prove_values(tmp_path / "adapter_model.safetensors", manifest)


def test_alpha_zero_changes_nothing(tmp_path: Path) -> None:
    manifest = upload(lora_alpha=0).manifest(tmp_path)
    with pytest.raises(AdapterRefused) as refused:
        prove_values(tmp_path / "adapter_model.safetensors", manifest)
    assert refused.value.code is RefusalCode.NO_EFFECT


def test_one_module_that_changes_something_is_enough(tmp_path: Path) -> None:
    good = upload()
    zero(good, lambda name: "layers.2.self_attn.v_proj" not in name)
    manifest = good.manifest(tmp_path)
    prove_values(tmp_path / "adapter_model.safetensors", manifest)
    assert manifest.max_rank == 4


def test_a_tensor_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_CHUNK_BYTES", 16)
    bad = upload()
    put(bad, A0, (3, 15), np.nan)
    manifest = bad.manifest(tmp_path)
    with pytest.raises(AdapterRefused, match=r"first at \[3, 15\]"):
        prove_values(tmp_path / "adapter_model.safetensors", manifest)


def test_the_worker_accepts_and_says_what_it_read(tmp_path: Path) -> None:
    good = upload()
    expected = good.manifest(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    assert prove(good.config_bytes(), weights, TINY, timeout_s=30) == expected


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        (lambda bad: bad.config.update(use_dora=True), "unsupported_feature", "adapter_config.json"),
        (lambda bad: put(bad, A0, (0, 0), np.nan), "not_finite", "adapter_model.safetensors"),
    ],
)
def test_the_worker_refuses(tmp_path: Path, change: Callable[[Upload], Any], code: str, part: str) -> None:
    bad = upload()
    change(bad)
    weights = bad.write(tmp_path)
    with pytest.raises(AdapterRefused) as refused:
        prove(bad.config_bytes(), weights, TINY, timeout_s=30)
    assert (refused.value.code, refused.value.part) == (code, part)
    assert refused.value.message


def test_a_config_that_is_not_utf8_reaches_the_worker_whole(tmp_path: Path) -> None:
    weights = upload().write(tmp_path)
    with pytest.raises(AdapterRefused, match="not UTF-8"):
        prove(b'{"\xff": 1}', weights, TINY, timeout_s=30)


def test_out_of_time_is_no_verdict(tmp_path: Path) -> None:
    good = upload()
    weights = good.write(tmp_path)
    with pytest.raises(ProofUnavailable, match="did not end within"):
        prove(good.config_bytes(), weights, TINY, timeout_s=0.01)


def test_a_worker_that_dies_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(ProofUnavailable, match="ended with code 1: FileNotFoundError"):
        prove(upload().config_bytes(), tmp_path / "gone", TINY, timeout_s=30)


def test_no_more_workers_than_the_limit(tmp_path: Path) -> None:
    good = upload()
    weights = good.write(tmp_path)
    held = [proof._workers.acquire(blocking=False) for _ in range(proof.MAX_WORKERS)]
    try:
        assert all(held)
        with pytest.raises(ProofUnavailable, match="Too many"):
            prove(good.config_bytes(), weights, TINY, timeout_s=0.05)
    finally:
        for _ in held:
            proof._workers.release()


def test_proofs_side_by_side(tmp_path: Path) -> None:
    good = upload()
    weights = good.write(tmp_path)
    found: list[int] = []

    def run() -> None:
        found.append(len(prove(good.config_bytes(), weights, TINY, timeout_s=60).modules))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [6, 6, 6, 6]
