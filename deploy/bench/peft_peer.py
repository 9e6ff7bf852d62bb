"""transformers + PEFT as a peer: one static batch whose rows use different adapters (`adapter_names`).

A program: `python -m deploy.bench.peft_peer MODEL ADAPTER ...` loads, writes `ready`, then for each line of
standard input (`base` or `mixed`) generates once and writes `{"tokens": …, "seconds": …}`, prefill included.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from deploy.bench.prompts import words

ROWS = 16
NEW_TOKENS = 32
PROMPT_WORDS = 60


def main(model_dir: str, folders: list[str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    names = [Path(folder).name for folder in folders]
    model = PeftModel.from_pretrained(base, folders[0], adapter_name=names[0])
    for name, folder in zip(names[1:], folders[1:], strict=True):
        model.load_adapter(folder, adapter_name=name)
    generate: Any = model.eval().generate  # untyped in PEFT
    rows = {"base": ["__base__"] * ROWS, "mixed": [names[row % len(names)] for row in range(ROWS)]}
    print("ready", flush=True)  # noqa: T201 - the protocol
    for turn, line in enumerate(sys.stdin):
        chats = [[{"role": "user", "content": words((turn, row), PROMPT_WORDS)}] for row in range(ROWS)]
        texts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            began = time.perf_counter()
            generate(
                **batch,
                adapter_names=rows[line.strip()],
                min_new_tokens=NEW_TOKENS,
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
            )
            seconds = time.perf_counter() - began
        print(json.dumps({"tokens": ROWS * NEW_TOKENS, "seconds": seconds}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
