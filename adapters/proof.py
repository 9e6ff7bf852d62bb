"""What must hold before an adapter may be stored: structure, then every value, read once in a process of its
own.

The worker is a fresh interpreter with limits on memory and processor time: an upload that breaks it breaks
nothing else. It holds the parsing too, so that hostile bytes are first read there.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.base import BaseSpec
from adapters.manifest import MAX_WEIGHTS_BYTES, Manifest, Module, read_manifest
from adapters.refused import WEIGHTS, AdapterRefused, Part, RefusalCode
from adapters.safetensors_header import ITEM_BYTES, Tensor, shown

MAX_WORKERS: Final = 2  # proofs at a time in this process
WORKER_MEMORY_BYTES: Final = 1024 * 1024 * 1024  # address space: interpreter, numpy, header and one chunk
_CHUNK_BYTES: Final = 4 * 1024 * 1024  # five times that while its values are float64
_EXPONENTS: Final = {"F32": 0x7F80_0000, "F16": 0x7C00, "BF16": 0x7F80}
_WORDS: Final[dict[int, np.dtype[np.unsignedinteger]]] = {4: np.dtype(np.uint32), 2: np.dtype(np.uint16)}

_workers = threading.BoundedSemaphore(MAX_WORKERS)


class ProofUnavailable(Exception):
    """The proof did not come to a verdict: out of time, or its worker died. The upload may be fine."""


class Job(msgspec.Struct, frozen=True):
    """What the worker reads on its standard input, as one JSON document."""

    config: bytes
    weights: str
    base: BaseSpec
    cpu_s: int
    max_weights_bytes: int


class ModuleFigures(msgspec.Struct, frozen=True):
    """What the values of one module are like. Norms are Frobenius norms."""

    layer: int
    site: str
    rank: int
    scale: float
    a_norm: float
    b_norm: float
    delta_bound: float  # |s| * |A| * |B|, which the norm of s·BA can't exceed
    largest: float  # magnitude among its values; NaN and infinity are refused, so there are none


class Verdict(msgspec.Struct, frozen=True):
    """What it writes: a manifest with figures of its modules, or a refusal."""

    manifest: Manifest | None = None
    figures: tuple[ModuleFigures, ...] = ()
    code: RefusalCode | None = None
    message: str = ""
    part: Part = WEIGHTS


@dataclass(frozen=True, slots=True)
class Examined:
    """An adapter whose structure and values hold."""

    manifest: Manifest
    figures: tuple[ModuleFigures, ...]  # in the manifest's order of modules


def prove(
    config: bytes,
    weights: Path,
    base: BaseSpec,
    *,
    timeout_s: float,
    max_weights_bytes: int = MAX_WEIGHTS_BYTES,
) -> Manifest:
    """As `examine`, for who needs no figures."""
    done = examine(config, weights, base, timeout_s=timeout_s, max_weights_bytes=max_weights_bytes)
    return done.manifest


def examine(
    config: bytes,
    weights: Path,
    base: BaseSpec,
    *,
    timeout_s: float,
    max_weights_bytes: int = MAX_WEIGHTS_BYTES,
) -> Examined:
    """Structure and values. Blocks for up to `timeout_s`, waiting for a free worker included; call it in a
    thread. Raises `AdapterRefused` or `ProofUnavailable`."""
    deadline = time.monotonic() + timeout_s
    if not _workers.acquire(timeout=timeout_s):
        raise ProofUnavailable("Too many adapters are being proved; try again.")
    try:
        job = Job(
            config,
            str(weights.resolve()),
            base,
            cpu_s=int(timeout_s) + 1,
            max_weights_bytes=max_weights_bytes,
        )
        verdict = _run_worker(msgspec.json.encode(job), max(0.1, deadline - time.monotonic()))
    finally:
        _workers.release()
    if verdict.code is not None:
        raise AdapterRefused(verdict.code, verdict.message, verdict.part)
    assert verdict.manifest is not None  # the worker writes one or the other
    return Examined(verdict.manifest, verdict.figures)


def _run_worker(job: bytes, timeout_s: float) -> Verdict:
    command = [
        sys.executable,
        "-P",
        "-B",
        "-m",
        "adapters.proof_worker",
    ]  # neither reads nor writes code here
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "OPENBLAS_NUM_THREADS": "1",  # its buffers would count against the worker's address space
    }
    try:
        done = subprocess.run(  # noqa: S603  (a fixed command; the upload is on its standard input)
            command, input=job, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProofUnavailable(f"The proof did not end within {timeout_s:.0f} s; try again.") from None
    except OSError as error:
        raise ProofUnavailable(f"The proof could not start: {error.strerror}.") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1][:200]
        raise ProofUnavailable(f"The proof ended with code {done.returncode}: {reason or 'no message'}.")
    return msgspec.json.decode(done.stdout, type=Verdict)


def prove_values(weights: Path, manifest: Manifest) -> tuple[ModuleFigures, ...]:
    """Streams each tensor once: every value is finite, and at least one module changes something. Raises
    `AdapterRefused`."""
    with weights.open("rb") as file:
        figures = tuple(_figures(file, module) for module in manifest.modules)
    if not any(each.delta_bound > 0 for each in figures):
        _refuse(
            RefusalCode.NO_EFFECT,
            "in every module A, B or the scale is zero, so the adapter would answer exactly as the base does "
            "(was it saved before it was trained?)",
        )
    return figures


def _figures(file: BinaryIO, module: Module) -> ModuleFigures:
    a_norm, a_largest = _check_tensor(file, module.lora_a)
    b_norm, b_largest = _check_tensor(file, module.lora_b)
    return ModuleFigures(
        layer=module.layer,
        site=module.site,
        rank=module.rank,
        scale=module.scale,
        a_norm=a_norm,
        b_norm=b_norm,
        delta_bound=_product(abs(module.scale), a_norm, b_norm),
        largest=max(a_largest, b_largest),
    )


def _product(*factors: float) -> float:
    """Zero only when a factor is, and never infinite: JSON has no word for that."""
    if 0.0 in factors:
        return 0.0
    return min(max(math.prod(factors), sys.float_info.min), sys.float_info.max)


def _check_tensor(file: BinaryIO, tensor: Tensor) -> tuple[float, float]:
    """Norm and largest magnitude; refuses NaN and infinity. Finds those in the bits, so that bf16 needs no
    library."""
    exponent = _EXPONENTS[tensor.dtype]
    squares, largest, done = 0.0, 0.0, 0
    file.seek(tensor.offset)
    while done < tensor.num_bytes:
        words = _read_words(file, tensor, min(_CHUNK_BYTES, tensor.num_bytes - done))
        broken = (words & exponent) == exponent
        if broken.any():
            index = done // ITEM_BYTES[tensor.dtype] + int(broken.argmax())
            place = [index // tensor.shape[1], index % tensor.shape[1]]
            _refuse(RefusalCode.NOT_FINITE, f"{shown(tensor.name)} holds NaN or infinity, first at {place}")
        values = _values(words, tensor.dtype)
        squares += float(np.dot(values, values))
        largest = max(largest, float(np.abs(values).max(initial=0.0)))
        done += words.nbytes
    return math.sqrt(squares), largest


def _values(words: NDArray[np.unsignedinteger], dtype: str) -> NDArray[np.float64]:
    """What the bits of finite values stand for; bf16 is the upper half of a float32."""
    if dtype == "BF16":
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return words.view(np.float16 if dtype == "F16" else np.float32).astype(np.float64)


def _read_words(file: BinaryIO, tensor: Tensor, num_bytes: int) -> NDArray[np.unsignedinteger]:
    raw = file.read(num_bytes)
    if len(raw) != num_bytes:
        raise EOFError(f"{tensor.name} ends before its size: the upload changed while it was proved")
    return np.frombuffer(raw, dtype=_WORDS[ITEM_BYTES[tensor.dtype]])


def _refuse(code: RefusalCode, message: str) -> NoReturn:
    raise AdapterRefused(code, message, WEIGHTS)


def judge(job: Job) -> Verdict:
    """What the worker does: read, check, and say which."""
    weights = Path(job.weights)
    try:
        manifest = read_manifest(job.config, weights, job.base, max_weights_bytes=job.max_weights_bytes)
        figures = prove_values(weights, manifest)
    except AdapterRefused as refused:
        return Verdict(code=refused.code, message=refused.message, part=refused.part)
    return Verdict(manifest=manifest, figures=figures)
