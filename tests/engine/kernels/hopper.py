"""How kernels written in Triton are tested where there is no GPU: run by the interpreter, compiled for sm_90.

Running. `tests/conftest.py` sets `TRITON_INTERPRET=1` before anything imports triton (whether a kernel is
interpreted is decided when `@triton.jit` runs, triton's own library included), so a test calls the launchers
of `engine/kernels` on CPU tensors and each program of the grid runs in numpy, one after the other. Keep grids
small: an operation costs about 20 µs whatever its size. Arithmetic on bfloat16 is wrong there
(`tests/engine/kernels/interpreter.py` mends `tl.dot` and conversions): convert to float32 first. A GPU run of
the same tests sets `TRITON_INTERPRET=0`.

Compiling needs the real `JITFunction`, so it happens in another process, started once a session by the
fixture `hopper` (in `tests/engine/kernels/conftest.py`):

    def test_the_prefill_tile_uses_wgmma(hopper: HopperCompiler) -> None:
        compiled = hopper.compile(kernel, {"x_at": "*bf16", "count": "i32"}, {"TILE": 64}, num_warps=4)
        assert "wgmma" in compiled.ptx
        assert compiled.stack_bytes == 0

A kernel must be importable under its `__module__`. Compiled kernels stay in triton's cache between sessions.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SM_90 = 90
WARP = 32


@dataclass(frozen=True)
class Compiled:
    ptx: str
    cubin: bytes
    registers: int  # of a thread
    stack_bytes: int  # of a thread: more than 0 means that registers were spilled to memory
    shared_bytes: int  # of a program, what the pipeline's stages take included


@dataclass(frozen=True)
class Order:
    """`signature` gives the types of the arguments that are no constants (`*bf16`, `i32`); `:16` after an
    integer's type promises that it is a multiple of 16, as the launcher finds out by itself. Pointers are
    taken to be aligned to 16 bytes."""

    module: str
    kernel: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    num_warps: int
    num_stages: int


class HopperCompiler:
    """Compiles kernels in a process where triton doesn't interpret. A context, which ends that process."""

    def __enter__(self) -> HopperCompiler:
        environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.kernels.hopper"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()  # harmless once it has ended

    def compile(
        self,
        kernel: Any,
        signature: Mapping[str, str],
        constexprs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
    ) -> Compiled:
        """Raises `AssertionError` with the compiler's message if it does not compile."""
        function = kernel.fn
        order = Order(
            function.__module__,
            function.__name__,
            dict(signature),
            dict(constexprs),
            num_warps,
            num_stages,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(order)), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"error": "the compiling process died"}')
        assert "error" not in answer, answer["error"]
        return Compiled(**(answer | {"cubin": base64.b64decode(answer["cubin"])}))


def _serve() -> None:
    """One order a line, one answer a line, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not look like an answer
    for line in sys.stdin:
        try:
            answer = _compiled(Order(**json.loads(line)))
        except Exception as error:  # whatever it is, it is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _compiled(order: Order) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(order.module), order.kernel)
    names = [parameter.name for parameter in kernel.params]
    types = {name: order.signature[name].partition(":")[0] for name in names if name in order.signature}
    aligned = [n for n, t in order.signature.items() if t.startswith("*") or t.endswith(":16")]
    source = ASTSource(
        kernel,
        types | dict.fromkeys(order.constexprs, "constexpr"),
        {(names.index(name),): value for name, value in order.constexprs.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": order.num_warps, "num_stages": order.num_stages}
    built = triton.compile(source, target=GPUTarget("cuda", SM_90, WARP), options=options)
    registers, stack = resources(built.asm["cubin"])
    return {
        "ptx": built.asm["ptx"],
        "cubin": base64.b64encode(built.asm["cubin"]).decode(),
        "registers": registers,
        "stack_bytes": stack,
        "shared_bytes": built.metadata.shared,
    }


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes of a thread, as the tool in triton's wheel reads them off the binary."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout)
    assert found is not None, told.stdout
    return int(found[1]), int(found[2])


if __name__ == "__main__":
    _serve()
