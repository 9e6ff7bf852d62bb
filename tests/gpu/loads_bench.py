"""How long an adapter takes to where a step can use it: from a file that no cache holds, and from host
memory. The roads are those of serving: the packed file's reader with its checksums, the arena's packing,
and a copy on a stream of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from adapters.base import BaseSpec
from adapters.digest import artefact_id, content_digest
from adapters.loader import load
from adapters.manifest import read_manifest
from adapters.packed import pack
from deploy.bench.random_adapters import Recipe, write_adapter
from engine.kernels.adapter_arena import AdapterArena
from engine.kernels.gpu_slots import ArenaSlots
from engine.kernels.lora import prepare
from tests.gpu.scale import Scale
from tests.gpu.sections import Found, Table
from tests.gpu.timing import settle

ROOT = Path(__file__).resolve().parents[2]
OWNER = "0192f3a0-0000-7000-8000-000000000001"
RUNS = 9


def measure(scale: Scale) -> Found:
    (ROOT / "var").mkdir(exist_ok=True)  # on the disk that adapters would be on
    with tempfile.TemporaryDirectory(dir=ROOT / "var", prefix="gpu-check-") as folder:
        base = _base(scale)
        path = _packed(Path(folder), base, scale.rank)
        return _measured(scale, base, path)


def _measured(scale: Scale, base: BaseSpec, path: Path) -> Found:
    layout, runs = scale.layout, 1 if scale.is_dry else RUNS
    loaded = load(path, base)
    prepared = prepare(loaded)
    budget = 2 * (layout.device_bytes(prepared) + layout.page_bytes)
    arena = AdapterArena(layout, 2, budget, scale.device)
    slots = ArenaSlots(arena, scale.device)
    run = slots.pack(prepared)
    num_bytes = sum(page.nbytes for page in run.pages)
    source = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=not scale.is_dry)
    target = torch.empty(num_bytes, dtype=torch.uint8, device=scale.device)

    def install() -> None:
        slots.install(0, run)
        slots.await_copies({0})
        settle(scale)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        settle(scale)

    def whole() -> None:
        slots.install(1, slots.pack(prepare(load(path, base))))
        slots.await_copies({1})
        settle(scale)

    told = [
        _line("file → slot, from the disk", whole, path.stat().st_size, runs, lambda: _forget(path)),
        _line("file → slot, from the page cache", whole, path.stat().st_size, runs),
        _line("of it: read and checked", lambda: load(path, base), path.stat().st_size, runs),
        _line("of it: into pinned memory", lambda: slots.pack(prepare(loaded)), num_bytes, runs),
        _line("host → slot", install, num_bytes, runs),
        _line("the same bytes by one copy", copy, num_bytes, runs),
    ]
    found = Found()
    if int(arena.rank.sum()) != 2 * scale.rank * len(prepared.modules):
        found.failures.append("the tables do not say what was installed")
    title = f"An adapter of rank {scale.rank} on all sites, {num_bytes / 2**20:.0f} MiB"
    found.tables.append(Table(title, ("way", "ms", "GB/s"), told))
    return found


def _line(
    way: str,
    work: Callable[[], object],
    num_bytes: int,
    runs: int,
    before: Callable[[], None] = lambda: None,
) -> tuple[str, str, str]:
    """Medians by the clock: what a request would wait."""
    times = []
    for _ in range(runs + 1):
        before()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    took = median(times[1:])
    return way, f"{took * 1e3:.2f}", f"{num_bytes / took / 1e9:.1f}"


def _forget(path: Path) -> None:
    """So that the next read comes from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _packed(folder: Path, base: BaseSpec, rank: int) -> Path:
    source = write_adapter(folder / "peft", base, Recipe(seed=1, rank=rank))
    weights, packed = source / "adapter_model.safetensors", folder / "packed.motet"
    manifest = read_manifest((source / "adapter_config.json").read_bytes(), weights, base)
    artefact = artefact_id(OWNER, content_digest(manifest, weights, base.base_id))
    pack(manifest, weights, packed, artefact=artefact, base_id=base.base_id)
    return packed


def _base(scale: Scale) -> BaseSpec:
    config = scale.config
    return BaseSpec(
        name="random",
        architecture=config.architecture,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        max_model_len=config.max_position_embeddings,
        eos_ids=config.eos_token_ids,
        tokenizer_digest="0" * 64,
        longest_token_bytes=None,
    )
