"""What a GPU runner launches for Llama 3.1 8B compiles for Hopper, fits it, and is known before it serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
MOST_SHARED = 227 * 1024  # of a program
REGISTERS = 65_536  # of a multiprocessor
KERNELS = {
    "_plan_kernel", "sort_rows", "_add_norm_kernel", "_quantize_kernel", "_silu_mul_codes_kernel",
    "_rotate_kernel", "_decode_kernel", "_merge_kernel", "_prefill_kernel", "shrink_kernel", "expand_kernel",
}  # fmt: skip


@pytest.fixture(scope="module")
def launched() -> list[dict[str, Any]]:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.model.launches"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_of_it_fits_and_spills_nothing(launched: list[dict[str, Any]]) -> None:
    assert {kernel["name"] for kernel in launched} == KERNELS
    for kernel in launched:
        assert kernel["stack_bytes"] == 0, kernel
        assert kernel["shared_bytes"] <= MOST_SHARED, kernel
        assert kernel["registers"] * kernel["threads"] <= REGISTERS, kernel


def test_no_step_waits_for_the_compiler(launched: list[dict[str, Any]]) -> None:
    """Below the largest graph and beyond it, in any number of tokens, with adapters and without."""
    assert not [kernel["name"] for kernel in launched if kernel["stage"] == "later"]
