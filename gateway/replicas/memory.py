"""What the router remembers of tenants' prompts and sessions: who served them last. Bounded in all, and no
tenant takes more than an equal part from the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

from gateway.replicas.replica import Replica
from gateway.replicas.want import PREFIX_TOKENS

MAX_ENTRIES: Final = 131_072
"""A worker's, of prefixes and of sessions each; some 20 MB when full."""
MAX_HOLDERS: Final = 4
"""Replicas remembered of a prefix, the latest first."""

Holder = tuple[Replica, int]
"""A replica and the life that it was in: after it went down, its caches are empty."""


class TenantMemory:
    """Least recently used entries go first: the tenant's own when it holds its equal part of all or more,
    else those of the tenant that was silent longest."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._by_tenant: OrderedDict[Hashable, OrderedDict[int, tuple[Holder, ...]]] = OrderedDict()
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    def of(self, tenant: Hashable) -> OrderedDict[int, tuple[Holder, ...]]:
        """A tenant's entries, to look at; empty for one that has none."""
        return self._by_tenant.get(tenant) or OrderedDict()

    def put(self, tenant: Hashable, name: int, holders: tuple[Holder, ...]) -> None:
        mine = self._by_tenant.setdefault(tenant, OrderedDict())
        self._by_tenant.move_to_end(tenant)
        if name not in mine:
            if self._num_entries >= self._max_entries:
                self._make_room(mine)
            self._num_entries += 1
        mine[name] = holders
        mine.move_to_end(name)

    def _make_room(self, mine: OrderedDict[int, tuple[Holder, ...]]) -> None:
        if mine and len(mine) >= self._max_entries // len(self._by_tenant):
            mine.popitem(last=False)
        else:
            silent, theirs = next(iter(self._by_tenant.items()))
            theirs.popitem(last=False)
            if not theirs:
                del self._by_tenant[silent]
        self._num_entries -= 1


class Prefixes:
    """Which replicas computed the beginning of a prompt lately, so that it lies in their cache."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._memory = TenantMemory(max_entries)

    def saved_tokens(self, tenant: Hashable, chain: Sequence[int]) -> dict[Replica, int]:
        """Tokens that need not be computed again, by the replicas that know most of the prompt."""
        known = self._memory.of(tenant)
        for place in range(len(chain) - 1, -1, -1) if known else ():
            holders = known.get(chain[place])
            if holders is not None:
                tokens = PREFIX_TOKENS[place]
                saved = {replica: tokens for replica, life in holders if replica.life == life}
                if saved:
                    return saved
        return {}

    def note(self, tenant: Hashable, chain: Sequence[int], replica: Replica) -> None:
        """`replica` is about to compute it."""
        known = self._memory.of(tenant)
        here = (replica, replica.life)
        for name in chain:
            before = known.get(name, ())
            if not before or before[0] != here:
                others = tuple(holder for holder in before if holder[0] is not replica)
                before = (here, *others[: MAX_HOLDERS - 1])
            self._memory.put(tenant, name, before)


class Sessions:
    """Where a session's requests go: to the replica that took its first, as long as that one lives."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._memory = TenantMemory(max_entries)

    def home(self, tenant: Hashable, session: int) -> Replica | None:
        holders = self._memory.of(tenant).get(session)
        if holders is None:
            return None
        replica, life = holders[0]
        return replica if replica.life == life else None

    def note(self, tenant: Hashable, session: int, replica: Replica, *, keep: bool) -> None:
        """`keep`: the home that it has stays, though this request went elsewhere."""
        home = self.home(tenant, session) if keep else None
        settled = home or replica
        self._memory.put(tenant, session, ((settled, settled.life),))
