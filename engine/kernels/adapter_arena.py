"""Adapters in a device's memory: one flat bfloat16 arena of a byte budget, cut into pages, and the tables by
which kernels find the factors of a slot.

An adapter takes whole pages at its exact ranks, layer after layer. A page holds the largest factor that the
base allows, so that no factor crosses into a page that isn't the next: any free pages will do, nothing is
ever moved, and an adapter fits whenever `device_bytes` of it are free. The tables hold element offsets, so a
kernel never sees the pages, and a captured graph serves whatever is installed.

Factors are kept in bfloat16: those of an adapter in float32 are rounded when they are packed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.lora import GROUPS, SITES, Factors, KernelAdapter

ALIGNED = 8  # elements: 16 bytes, what one thread loads at once
ELEMENT_BYTES = 2


class ArenaFull(Exception):
    """The budget can't hold the adapter now, or, without a page free of all others, ever."""


@dataclass(frozen=True)
class ArenaLayout:
    """`sites`: (in, out) of each linear site, of this rank's shard where the base is sharded."""

    num_layers: int
    sites: Mapping[str, tuple[int, int]]
    max_rank: int = 256

    def __post_init__(self) -> None:
        assert self.max_rank % ALIGNED == 0

    @property
    def page_elements(self) -> int:
        return _aligned(self.max_rank * max(max(shape) for shape in self.sites.values()))

    @property
    def page_bytes(self) -> int:
        return self.page_elements * ELEMENT_BYTES

    def device_bytes(self, adapter: KernelAdapter) -> int:
        """What the adapter takes of an arena's budget: whole pages."""
        return self.num_pages(self.place(adapter)) * self.page_bytes

    def place(self, adapter: KernelAdapter) -> list[Placed]:
        """Where each factor lies in the adapter's run, in order."""
        placed: list[Placed] = []
        at, page = 0, self.page_elements
        for layer, site, factors, of_a in self._factors(adapter):
            tensor = factors.a if of_a else factors.b
            if at // page != (at + tensor.numel() - 1) // page:
                at = (at // page + 1) * page
            placed.append(Placed(layer, SITES.index(site), of_a, at, tensor))
            at += _aligned(tensor.numel())
        return placed

    def num_pages(self, placed: Sequence[Placed]) -> int:
        return -(-placed[-1].end // self.page_elements) if placed else 0

    def _factors(self, adapter: KernelAdapter) -> Iterator[tuple[int, str, Factors, bool]]:
        """A of a group's sites, then their B, in the order in which a step reads them."""
        for layer in range(self.num_layers):
            for members in GROUPS.values():
                for of_a in (True, False):
                    for site in members:
                        if factors := adapter.modules.get((layer, site)):
                            self._check(site, factors)
                            yield layer, site, factors, of_a

    def _check(self, site: str, factors: Factors) -> None:
        assert (factors.a.shape[1], factors.b.shape[1]) == self.sites[site]
        assert 0 < factors.rank <= self.max_rank


@dataclass(frozen=True, slots=True)
class Placed:
    layer: int
    site: int  # index in SITES
    of_a: bool
    at: int  # element in the run
    factor: Tensor

    @property
    def end(self) -> int:
        return self.at + self.factor.numel()


@dataclass(frozen=True)
class HostRun:
    """An adapter as it will lie in an arena, in host memory (pinned, if it was packed so). Offsets are those
    in the run; where there is no module the rank is 0.

    Each page has memory of its own, of one size for all adapters: torch never returns pinned memory, and
    gives out again what was let go for the same power of two alone.
    """

    pages: Sequence[Tensor]  # bfloat16 [elements of a page], fewer in the last
    a_at: Tensor  # int64 [layers, sites]
    b_at: Tensor  # int64 [layers, sites]
    rank: Tensor  # int32 [layers, sites]
    scale: Tensor  # float32 [layers, sites]
    touched: frozenset[tuple[int, str]]  # (layer, group)

    @property
    def num_bytes(self) -> int:
        """Of host memory, which torch hands out in powers of two where it is pinned."""
        if not self.pages:
            return 0
        size = self.pages[0].untyped_storage().nbytes()
        return len(self.pages) * (1 << (size - 1).bit_length() if self.pages[0].is_pinned() else size)


def pack_for_arena(adapter: KernelAdapter, layout: ArenaLayout, *, pin: bool = False) -> HostRun:
    """Touches no device, so that a loader thread may call it; `pin` needs CUDA and lets the copy run beside
    the host's work."""
    placed, page = layout.place(adapter), layout.page_elements
    shape, count = (layout.num_layers, len(SITES)), layout.num_pages(placed)
    pages = [torch.empty(page, dtype=torch.bfloat16, pin_memory=pin) for _ in range(count)]
    offsets = torch.zeros(2, *shape, dtype=torch.int64)
    rank = torch.zeros(shape, dtype=torch.int32, pin_memory=pin)
    scale = torch.zeros(shape, dtype=torch.float32, pin_memory=pin)
    for part in placed:
        start = part.at % page
        pages[part.at // page][start : start + part.factor.numel()].copy_(part.factor.reshape(-1))
        offsets[0 if part.of_a else 1, part.layer, part.site] = part.at
    for (layer, site), factors in adapter.modules.items():
        rank[layer, SITES.index(site)] = factors.rank
        scale[layer, SITES.index(site)] = factors.scale
    if pages:
        pages[-1] = pages[-1][: placed[-1].end - (count - 1) * page]
    return HostRun(pages, offsets[0], offsets[1], rank, scale, frozenset(adapter.touched))


class AdapterArena:
    """Owns the arena, its free pages and the tables. For the step thread alone, like `Runner`.

    Tables are [layers, sites, slots], sites in the order of `engine.kernels.lora.SITES`; rank 0 says that the
    slot has nothing at that site, and then the offsets mean nothing.
    """

    def __init__(
        self, layout: ArenaLayout, num_slots: int, budget_bytes: int, device: torch.device | str
    ) -> None:
        """Raises `ArenaFull` if the budget holds no page."""
        self.layout = layout
        self.num_slots = num_slots
        self.num_pages = budget_bytes // layout.page_bytes
        if self.num_pages == 0:
            raise ArenaFull(
                f"a budget of {budget_bytes} bytes for adapters on the device holds none of "
                f"{layout.page_bytes} bytes, the largest factor of this base at rank {layout.max_rank}"
            )
        self.data = torch.empty(self.num_pages * layout.page_elements, dtype=torch.bfloat16, device=device)
        table = layout.num_layers, len(SITES), num_slots
        self.a_at = torch.zeros(table, dtype=torch.int64, device=device)
        self.b_at = torch.zeros(table, dtype=torch.int64, device=device)
        self.rank = torch.zeros(table, dtype=torch.int32, device=device)
        self.scale = torch.zeros(table, dtype=torch.float32, device=device)
        self.epoch = 0  # moves with every change of any slot
        self._free = list(range(self.num_pages))  # sorted
        self._pages: dict[int, list[int]] = {}
        self._touched: dict[int, frozenset[tuple[int, str]]] = {}
        self._touching: Counter[tuple[int, str]] = Counter()

    @property
    def free_bytes(self) -> int:
        return len(self._free) * self.layout.page_bytes

    def touches(self, layer: int, group: str) -> bool:
        """Whether any installed adapter has a module there: if none has, the site may be skipped."""
        return self._touching[layer, group] > 0

    def install(self, slot: int, adapter: KernelAdapter) -> None:
        """`install_run`, packed here and now, on the current stream."""
        self.install_run(slot, pack_for_arena(adapter, self.layout))

    def install_run(self, slot: int, run: HostRun, stream: torch.cuda.Stream | None = None) -> None:
        """Copy the run into free pages and point the slot's rows of the tables at it, both on `stream`.

        Raises `ArenaFull`, and then the slot holds what it held. Returns once the copies are queued. The
        caller orders them: `stream` first waits for the last step that could read what is overwritten (of
        this slot, or of any cleared since), and a step with rows of this slot waits for `stream`.
        """
        available = len(self._free) + len(self._pages.get(slot, ()))
        if len(run.pages) > available:
            need, have = len(run.pages) * self.layout.page_bytes, available * self.layout.page_bytes
            raise ArenaFull(f"the adapter takes {need} bytes on the device, {have} are free")
        self._release(slot)
        pages = self._take(len(run.pages))
        with torch.cuda.stream(stream):
            self._copy(run.pages, pages)
            self._write_tables(slot, run, pages)
        self._pages[slot], self._touched[slot] = pages, run.touched
        self._touching.update(run.touched)
        self.epoch += 1

    def clear(self, slot: int) -> None:
        """Zero the slot's ranks on the current stream and free its pages."""
        self._release(slot)
        self.rank[:, :, slot].zero_()
        self.epoch += 1

    def _release(self, slot: int) -> None:
        self._free = sorted([*self._free, *self._pages.pop(slot, ())])
        self._touching.subtract(self._touched.pop(slot, frozenset()))

    def _take(self, count: int) -> list[int]:
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def _copy(self, contents: Sequence[Tensor], pages: Sequence[int]) -> None:
        for content, number in zip(contents, pages, strict=True):
            start = number * self.layout.page_elements
            self.data[start : start + len(content)].copy_(content, non_blocking=True)

    def _write_tables(self, slot: int, run: HostRun, pages: Sequence[int]) -> None:
        page = self.layout.page_elements
        starts = torch.tensor([number * page for number in pages] or [0], dtype=torch.int64)
        for table, at in ((self.a_at, run.a_at), (self.b_at, run.b_at)):
            places = starts[at // page] + at % page
            places = places.pin_memory() if run.rank.is_pinned() else places
            table[:, :, slot].copy_(places, non_blocking=True)
        self.rank[:, :, slot].copy_(run.rank, non_blocking=True)
        self.scale[:, :, slot].copy_(run.scale, non_blocking=True)


def _aligned(elements: int) -> int:
    return -(-elements // ALIGNED) * ALIGNED
