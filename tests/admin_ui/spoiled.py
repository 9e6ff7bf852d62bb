"""Ten of the commonest bad adapters, and what whoever chooses one is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.admin_ui.bringing import CONFIG, WEIGHTS


def bad(folder: Path, **config: Any) -> Path:
    found = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**found, **config}))
    return folder


def dora(folder: Path) -> Path:
    return bad(folder, use_dora=True)


def high_rank(folder: Path) -> Path:
    return bad(folder, r=512)


def other_method(folder: Path) -> Path:
    return bad(folder, peft_type="IA3")


def no_json(folder: Path) -> Path:
    (folder / CONFIG).write_text("{r: 16}")
    return folder


def pickled(folder: Path) -> Path:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    return folder


def pickled_by_another_name(folder: Path) -> Path:
    (folder / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(100))
    return folder


def cut_short(folder: Path) -> Path:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-10])
    return folder


def pointer(folder: Path) -> Path:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    return folder


def nested(folder: Path) -> Path:
    outer = folder.parent / "outer"
    outer.mkdir()
    folder.rename(outer / "checkpoint-500")
    (outer / "README.md").write_text("#")
    return outer


def without_config(folder: Path) -> Path:
    (folder / CONFIG).unlink()
    return folder


REFUSED = {
    dora: ("adapter_config.json: use_dora", "true", "Train without it"),
    high_rank: ("adapter_config.json: r", "512", "a rank from 1 to 256"),
    other_method: ("adapter_config.json: peft_type", "IA3", "Train a LoRA"),
    no_json: ("adapter_config.json", "JSON", "save_pretrained"),
    pickled: (WEIGHTS, "adapter_model.bin", "safe_serialization=True"),
    pickled_by_another_name: (WEIGHTS, "a pickle", "safe_serialization=True"),
    cut_short: (WEIGHTS, "of which the head says", "copy or download it again"),
    pointer: (WEIGHTS, "a Git LFS pointer", "git lfs pull"),
    nested: (CONFIG, f"{CONFIG} is inside checkpoint-500/", "Choose the folder checkpoint-500 itself"),
    without_config: (CONFIG, f"no {CONFIG} among 1 file", "save_pretrained"),
}
