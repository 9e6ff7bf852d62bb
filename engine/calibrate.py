"""`motet engine calibrate`: measures the scales of an FP8 KV cache and writes them to a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.model.config import ModelRefused
from engine.model.kv_scales import BUILT_IN_TEXT, MARGIN, text_tokens, write_scales
from engine.model.runner import ModelRunner, RunnerOptions


def run(model: Path, out: Path, text: Path | None, *, quantization: str, threads: int) -> int:
    """The exit status."""
    options = RunnerOptions(
        num_blocks=1, num_slots=1, num_threads=threads or os.cpu_count() or 1, quantization=quantization
    )
    try:
        tokens = text_tokens(model, (text or BUILT_IN_TEXT).read_text())
        runner = ModelRunner(model, options)
        scales = runner.measure_kv_scales(tokens)
        write_scales(out, scales, runner.base_digest)
    except (ModelRefused, UnicodeDecodeError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    sys.stdout.write(
        f"{out}: measured with {len(tokens)} tokens, margin {MARGIN:g}; "
        f"keys {min(scales.keys):.3g} to {max(scales.keys):.3g}, "
        f"values {min(scales.values):.3g} to {max(scales.values):.3g}\n"
    )
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"motet engine calibrate: {message}\n")
    return 1
