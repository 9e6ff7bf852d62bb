"""Turns a GGUF file into a Hugging Face folder: bf16 safetensors, tokenizer.json, chat template.

A program of its own, run as `python -m deploy.local.gguf_import SOURCE TARGET`, so that the memory of
transformers and of the dequantized weights goes away with it. Nothing else in `deploy` imports torch.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(source: Path, target: Path) -> None:
    """`source`: a GGUF file that transformers can dequantize. `target`: an empty folder."""
    import torch  # noqa: PLC0415 - heavy, and only this program needs it
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415
    from transformers.utils import logging  # noqa: PLC0415

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves these two bare
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    folder, name = str(source.parent), source.name
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):  # the weights are plain bf16 from here on
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
