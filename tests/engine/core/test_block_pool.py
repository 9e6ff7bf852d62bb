"""The block pool under any order of use, and names that can't be confused."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.block_pool import BlockPool
from engine.core.prefix import BlockKey, extend_key, root_key

NUM_BLOCKS = 12
ROOT = root_key("digest", None, "tenant", "salt")


def chain(*tokens: int) -> list[BlockKey]:
    keys, parent = [], ROOT
    for token in tokens:
        parent = extend_key(parent, [token])
        keys.append(parent)
    return keys


class PoolUse(RuleBasedStateMachine):
    """Tables are taken, shared, grown and released at random; each holds blocks for a chain of tokens."""

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(NUM_BLOCKS)
        self.tables: list[tuple[list[int], list[BlockKey]]] = []
        self.contents: dict[int, BlockKey] = {}  # what was written to each block last

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def admit(self, tokens: list[int]) -> None:
        keys = chain(*tokens)
        shared = self.pool.match(keys)
        assert [self.contents[block] for block in shared] == keys[: len(shared)], "a name tells the contents"
        need = len(keys) - len(shared)
        if need + self.pool.num_cached(shared) > self.pool.num_allocatable:
            return
        self.pool.take(shared)
        fresh = self.pool.allocate(need)
        assert not set(fresh) & {block for table, _ in self.tables for block in table}
        for block, key in zip(fresh, keys[len(shared) :], strict=True):
            self.contents[block] = key
            self.pool.publish(block, key)
        self.tables.append(([*shared, *fresh], keys))

    @precondition(lambda self: self.pool.num_allocatable > 0)
    @rule()
    def hold_without_a_name(self) -> None:
        (block,) = self.pool.allocate(1)
        self.contents.pop(block, None)
        self.tables.append(([block], []))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        table, _ = self.tables.pop(index)
        self.pool.release(table)

    @invariant()
    def adds_up(self) -> None:
        self.pool.check(table for table, _ in self.tables)

    @invariant()
    def nobody_overwrote_what_is_held(self) -> None:
        for table, keys in self.tables:
            for block, key in zip(table, keys, strict=False):
                assert self.contents[block] == key


TestPoolUse = PoolUse.TestCase
TestPoolUse.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_blocks_that_nobody_uses_are_overwritten_oldest_and_deepest_first() -> None:
    pool = BlockPool(4)
    old, new = chain(1, 2), chain(3, 4)
    for keys in (old, new):
        blocks = pool.allocate(2)
        for block, key in zip(blocks, keys, strict=True):
            pool.publish(block, key)
        pool.release(blocks)
    pool.release(pool.allocate(1))
    assert len(pool.match(old)) == 1
    assert len(pool.match(new)) == 2


FIELDS = ("", "a", "b", "ab", "n", "\0")
ROOTS = [
    (digest, artefact, tenant, salt)
    for digest in ("d", "e")
    for artefact in (None, *FIELDS)
    for tenant in FIELDS
    for salt in FIELDS
]


def test_every_difference_in_base_adapter_tenant_or_salt_is_another_name() -> None:
    names = {root_key(*fields) for fields in ROOTS}
    assert len(names) == len(ROOTS)


tokens_strategy = st.lists(st.integers(0, 2**32 - 1), max_size=6)


@given(tokens_strategy, tokens_strategy)
def test_names_of_blocks_differ_with_their_tokens(one: list[int], other: list[int]) -> None:
    assert (extend_key(ROOT, one) == extend_key(ROOT, other)) is (one == other)


def test_a_block_is_named_for_all_that_stands_before_it() -> None:
    keys = {chain(*tokens)[-1] for length in (1, 2, 3) for tokens in itertools.product((1, 2), repeat=length)}
    assert len(keys) == 2 + 4 + 8
    assert ROOT not in keys
