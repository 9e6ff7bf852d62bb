"""The adapter slots of a device: copies on a stream of their own, beside the steps that compute."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.kernels.adapter_arena import AdapterArena, HostRun, pack_for_arena
from engine.kernels.lora import KernelAdapter


class ArenaSlots:
    """`engine.kernels.shapes.AdapterSlots` over an arena. Without a GPU, copies are done when they return.

    Every write of the arena and its tables is on one stream, so that they keep their order. A step waits for
    those of the slots that it uses; nothing waits for a step, since whoever installs or clears has waited
    for all steps that used the slot.
    """

    def __init__(self, arena: AdapterArena, device: torch.device) -> None:
        self.arena = arena
        self._on_gpu = device.type == "cuda"
        self._stream = new_stream(device) if self._on_gpu else None
        if self._stream is not None:  # the arena's tables are still being zeroed on the current one
            self._stream.wait_stream(torch.cuda.current_stream())
        self._groups: dict[int, frozenset[str]] = {}  # by slot
        self._copied: dict[int, torch.cuda.Event] = {}  # by slot, until a step has waited for it

    def install(self, slot: int, adapter: KernelAdapter | HostRun) -> None:
        """A `HostRun` that was packed in pinned memory copies beside the host's work. Raises `ArenaFull`."""
        run = adapter if isinstance(adapter, HostRun) else self.pack(adapter)
        self.arena.install_run(slot, run, self._stream)
        self._groups[slot] = frozenset(group for _, group in run.touched)
        if self._stream is not None:
            self._copied[slot] = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch gives it no types
            self._copied[slot].record(self._stream)

    def pack(self, adapter: KernelAdapter) -> HostRun:
        """What `install` copies; takes no lock and touches no device, so that a loader thread may call it."""
        return pack_for_arena(adapter, self.arena.layout, pin=self._on_gpu)

    def groups(self, slots: Iterable[int]) -> frozenset[str]:
        """The fused groups in which an adapter of these slots has something. A slot that a row names is full,
        or names the base."""
        return frozenset().union(*(self._groups[slot] for slot in slots if slot >= 0))

    def clear(self, slot: int) -> None:
        self._groups.pop(slot, None)
        self._copied.pop(slot, None)
        with torch.cuda.stream(self._stream):
            self.arena.clear(slot)

    def await_copies(self, slots: Iterable[int]) -> None:
        """What is launched on the current stream from here on starts after these slots' adapters have
        arrived."""
        for slot in slots:
            if (copied := self._copied.pop(slot, None)) is not None:
                torch.cuda.current_stream().wait_event(copied)


def new_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types
