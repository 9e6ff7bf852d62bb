"""A replica's device is what was asked for, or it doesn't start; what a GPU is given follows from the
settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.config import CoreSettings, EngineSettings
from engine.kernels.adapter_arena import HostRun
from engine.kernels.lora import prepare
from engine.model import gpu_opening
from engine.model.config import ModelRefused
from engine.model.device import chosen_device
from engine.model.gpu_opening import open_gpu_runner
from engine.model.kv_scales import KvScales, write_scales
from engine.model.runner import ModelRunner, RunnerOptions
from tests.engine.kernels.test_kernels import Host
from tests.engine.model.test_families import make

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make("llama", path)
    return path


def settings(folder: Path, **changed: object) -> CoreSettings:
    given = {"slots": 2, "max_model_len": 64, "num_blocks": 9, "max_running": 4, "token_budget": 16} | changed
    return CoreSettings.of(
        EngineSettings.model_validate({"token": "t" * 16, "model": folder} | given), "ipc://x"
    )


def test_a_gpu_that_is_not_there_is_not_replaced_by_a_cpu_in_silence() -> None:
    if torch.cuda.is_available():
        assert chosen_device("cuda").type == chosen_device("auto").type == "cuda"
    else:
        with pytest.raises(ModelRefused, match="torch finds none"):
            chosen_device("cuda")
        assert chosen_device("auto") == CPU
    assert chosen_device("cpu") == CPU


def test_the_base_is_the_same_on_every_device(folder: Path) -> None:
    ours = open_gpu_runner(settings(folder), CPU)
    twin = ModelRunner(folder, RunnerOptions("bfloat16", 64, num_blocks=9, num_slots=2, num_threads=1))
    for fact in ("base_digest", "max_model_len", "vocab_size", "eos_token_ids", "num_blocks", "block_size"):
        assert getattr(ours, fact) == getattr(twin, fact)
    assert (ours.max_in_flight, twin.max_in_flight) == (2, 1)


def test_budgets_become_blocks_and_pages(folder: Path) -> None:
    block = 2 * 2 * 16 * 2 * 12 * 2  # K and V, layers, positions, kv heads, head, bytes
    runner = open_gpu_runner(settings(folder, num_blocks=None, kv_bytes=block * 11 + 5), CPU)
    assert runner.num_blocks == 11
    inputs, outputs = runner.config.sites["q_proj"]
    adapter = prepare(Host({(0, "q_proj"): (torch.ones(8, inputs), torch.ones(outputs, 8), 1.0)}))
    run = runner.pack(adapter)
    assert isinstance(run, HostRun)
    assert 0 < run.num_bytes <= runner.device_bytes(run) <= runner.device_adapter_bytes
    page = runner.device_bytes(run)
    assert (
        open_gpu_runner(settings(folder, device_adapter_bytes=3 * page + 1), CPU).device_adapter_bytes
        == 3 * page
    )
    with pytest.raises(ModelRefused, match="holds no block"):
        open_gpu_runner(settings(folder, num_blocks=None, kv_bytes=block - 1), CPU)


def test_a_cache_in_fp8_takes_the_scales_of_its_file_and_a_name_of_its_own(
    folder: Path, tmp_path: Path
) -> None:
    plain = open_gpu_runner(settings(folder), CPU)
    scales = KvScales((0.5, 0.25), (0.125, 2.0))
    write_scales(tmp_path / "scales.json", scales, plain.base_digest)
    coded = open_gpu_runner(
        settings(folder, kv_cache_dtype="fp8_e4m3", kv_scales=tmp_path / "scales.json"), CPU
    )
    assert coded.base_digest == scales.digest(plain.base_digest) != plain.base_digest
    assert [(cache.key_scale, cache.value_scale) for cache in coded.caches] == [(0.5, 0.125), (0.25, 2.0)]
    assert {cache.keys.dtype for cache in coded.caches} == {torch.float8_e4m3fn}
    with pytest.raises(ModelRefused, match="in FP8"):
        open_gpu_runner(settings(folder, kv_scales=tmp_path / "scales.json"), CPU)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dtype": "float32"}, "only bfloat16"),
        ({"tensor_parallel": 2, "kv_cache_dtype": "fp8_e4m3"}, "give --kv-scales"),
        ({"max_model_len": 999}, "over"),
        ({"max_running": 2049, "token_budget": 2100}, "at most 2048"),
        ({"block_size": 20}, "multiple of 16"),
    ],
)
def test_what_a_gpu_can_not_serve_is_refused(folder: Path, changed: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason):
        open_gpu_runner(settings(folder, **changed), CPU)


def test_what_does_not_fit_on_the_device_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")

    monkeypatch.setattr(gpu_opening, "GpuRunner", full)
    with pytest.raises(ModelRefused, match=r"lower --kv-bytes.*9\.00 GiB"):
        open_gpu_runner(settings(folder), CPU)


def test_a_replica_on_a_cpu_needs_no_triton() -> None:
    """It isn't installed with torch for CPUs, and its import takes time and memory."""
    code = "import sys, engine.core_process; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
