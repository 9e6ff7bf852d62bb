"""Who holds which KV block. The pool is the only owner of that fact; sequences hold block numbers.

| a block is | references | name in the index | found in |
|---|---|---|---|
| free   | 0   | no  | the free list |
| cached | 0   | yes | the cached list, least recently used first |
| used   | >=1 | once it is full | the block tables of that many sequences |
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from engine.core.prefix import BlockKey


class KvStore(Protocol):
    """Where KV lives, as the scheduler sees it; an offloading store can stand in its place."""

    @property
    def num_allocatable(self) -> int:
        """Blocks that `allocate` could give: free and cached ones."""
        ...

    def match(self, keys: Sequence[BlockKey]) -> list[int]:
        """Blocks of the longest known prefix of `keys`. Takes no reference."""
        ...

    def num_cached(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` are unreferenced, so that taking them lessens `num_allocatable`."""
        ...

    def take(self, blocks: Sequence[int]) -> None:
        """One more reference to each matched block."""
        ...

    def allocate(self, count: int) -> list[int]:
        """`count` blocks of unspecified contents, with one reference each; `count` <= `num_allocatable`."""
        ...

    def publish(self, block: int, key: BlockKey) -> None:
        """Names a used block whose KV is complete, so that others can share it."""
        ...

    def release(self, blocks: Sequence[int]) -> None:
        """Gives back one reference to each block of a table (first position first)."""
        ...


class BlockPool:
    """The `KvStore` of one device: reference counts, a free list, and a cached list in order of last use."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._keys: list[BlockKey | None] = [None] * num_blocks
        self._index: dict[BlockKey, int] = {}
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_allocatable(self) -> int:
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_allocatable

    @property
    def num_in_cache(self) -> int:
        return len(self._cached)

    def match(self, keys: Sequence[BlockKey]) -> list[int]:
        blocks = []
        for key in keys:
            block = self._index.get(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def num_cached(self, blocks: Iterable[int]) -> int:
        return sum(self._references[block] == 0 for block in blocks)

    def take(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            assert self._keys[block] is not None, "only a named block can be shared"
            if self._references[block] == 0:
                del self._cached[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        assert count <= self.num_allocatable, "the caller looks before it allocates"
        return [self._allocate_one() for _ in range(count)]

    def publish(self, block: int, key: BlockKey) -> None:
        assert self._references[block] > 0, "only its holder can name a block"
        if key in self._index or self._keys[block] is not None:
            return  # the same contents are shared already; this copy goes when its holder does
        self._keys[block] = key
        self._index[key] = block

    def release(self, blocks: Sequence[int]) -> None:
        # Last position first: of a prefix that nobody uses, its end is the first to be overwritten.
        for block in reversed(blocks):
            assert self._references[block] > 0, "a block is released once for each reference"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._put_away(block)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Asserts that every block is accounted for, `tables` being all block tables in use."""
        held = Counter(block for table in tables for block in table)
        assert all(self._references[block] == held[block] for block in range(self.num_blocks)), (
            "reference counts"
        )
        used = {block for block in range(self.num_blocks) if self._references[block] > 0}
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a block is free once"
        assert len(used) + len(free) + len(cached) == self.num_blocks, "free + used + cached == all"
        assert used | free | cached == set(range(self.num_blocks)), "every block is somewhere"
        assert all(self._keys[block] is None for block in free), "a free block has no name"
        assert all(self._keys[block] is not None for block in cached), "a cached block has a name"
        named = {key: block for block, key in enumerate(self._keys) if key is not None}
        assert named == self._index, "the index names exactly the named blocks"

    def _allocate_one(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            key = self._keys[block]
            assert key is not None
            del self._index[key]
            self._keys[block] = None
        self._references[block] = 1
        return block

    def _put_away(self, block: int) -> None:
        if self._keys[block] is None:
            self._free.append(block)
        else:
            self._cached[block] = None
