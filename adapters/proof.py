"""What must hold before an adapter may be stored: structure, then every value, read once in a process of its
own.

The worker is a fresh interpreter with limits on memory and processor time: an upload that breaks it breaks
nothing else. It holds the parsing too, so that hostile bytes are first read there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
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
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_EXPONENTS: Final = {"F32": 0x7F80_0000, "F16": 0x7C00, "BF16": 0x7F80}
_MAGNITUDES: Final = {"F32": 0x7FFF_FFFF, "F16": 0x7FFF, "BF16": 0x7FFF}
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


class Verdict(msgspec.Struct, frozen=True):
    """What it writes: a manifest, or a refusal."""

    manifest: Manifest | None = None
    code: RefusalCode | None = None
    message: str = ""
    part: Part = WEIGHTS


def prove(
    config: bytes,
    weights: Path,
    base: BaseSpec,
    *,
    timeout_s: float,
    max_weights_bytes: int = MAX_WEIGHTS_BYTES,
) -> Manifest:
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
    return verdict.manifest


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


def prove_values(weights: Path, manifest: Manifest) -> None:
    """Streams each tensor once: every value is finite, and at least one module changes something. Raises
    `AdapterRefused`."""
    effective = False
    with weights.open("rb") as file:
        for module in manifest.modules:
            effective |= _check_module(file, module)
    if not effective:
        _refuse(
            RefusalCode.NO_EFFECT,
            "in every module A, B or the scale is zero, so the adapter would answer exactly as the base does "
            "(was it saved before it was trained?)",
        )


def _check_module(file: BinaryIO, module: Module) -> bool:
    """Whether the module changes something."""
    nonzero = [_check_tensor(file, tensor) for tensor in (module.lora_a, module.lora_b)]
    return all(nonzero) and module.scale != 0.0


def _check_tensor(file: BinaryIO, tensor: Tensor) -> bool:
    """Whether any value is not zero; refuses NaN and infinity. Works on bits, so that bf16 needs no
    library."""
    exponent, magnitude = _EXPONENTS[tensor.dtype], _MAGNITUDES[tensor.dtype]
    nonzero, done = False, 0
    file.seek(tensor.offset)
    while done < tensor.num_bytes:
        words = _read_words(file, tensor, min(_CHUNK_BYTES, tensor.num_bytes - done))
        broken = (words & exponent) == exponent
        if broken.any():
            index = done // ITEM_BYTES[tensor.dtype] + int(broken.argmax())
            place = [index // tensor.shape[1], index % tensor.shape[1]]
            _refuse(RefusalCode.NOT_FINITE, f"{shown(tensor.name)} holds NaN or infinity, first at {place}")
        nonzero = nonzero or bool((words & magnitude).any())
        done += words.nbytes
    return nonzero


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
        prove_values(weights, manifest)
    except AdapterRefused as refused:
        return Verdict(code=refused.code, message=refused.message, part=refused.part)
    return Verdict(manifest=manifest)
