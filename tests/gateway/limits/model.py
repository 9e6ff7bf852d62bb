"""Requests that meet their ends in any order, over the twin of the scripts: who is let in, and what stays
taken."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeVar
from uuid import UUID

from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.limits.amounts import Tokens
from gateway.limits.asks import ADMITTED, REFUSED
from gateway.limits.levels import Plan, plan_of
from gateway.limits.local_store import LocalStore
from gateway.principal import Budget, Limits, Period, Principal, Scope, TenantId

T = TypeVar("T")

DAY = date(2026, 11, 30)
TENANT = TenantId(UUID(int=7))
LEASE_US = 60_000_000
REQUESTS = 4


def principal_of(tenant: Limits, key: Limits, budgets: tuple[Budget, ...] = ()) -> Principal:
    return Principal(
        tenant=TENANT,
        tenant_name="acme",
        key_id="k1",
        scopes=frozenset({Scope.INFERENCE}),
        tenant_limits=tenant,
        key_limits=key,
        salt="salt",
        epoch=1,
        budgets=budgets,
    )


def full_plan(limit: int = 100_000, places: int = 2, budget: int = 10**12) -> Plan:
    """Every meter at every level, and four budgets."""
    limits = Limits(limit, limit, places, limit, limit)
    budgets = tuple(
        Budget(of_key, period, budget, hard=True) for of_key in (False, True) for period in Period
    )
    who = principal_of(limits, replace(limits, max_parallel=places + 1), budgets)
    adapter = ResolvedAdapter("pirate", 1, "a" * 64, TENANT, limits)
    return plan_of(who, DAY).of_model(Resolved("pirate", "b" * 64, adapter))


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of what never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("the twin waits for nothing")


@dataclass
class Clock:
    us: int = 1_000_000_000

    def __call__(self) -> int:
        return self.us


@dataclass
class _Request:
    id: str
    admitted: bool = False
    tokens: Tokens | None = None
    money: int = 0
    over: bool = False
    killed: bool = False  # with its worker: nobody speaks for it any more


@dataclass
class Interleaving:
    """One run. `still`: the clock stands, so that what is taken can be told to the microsecond."""

    seed: int
    still: bool
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.plan = full_plan()
        self.store = LocalStore(lease_s=LEASE_US / 1e6, clock_us=self.clock)
        for counter in self.plan.counters:
            now(self.store.seed(counter, 0))
        self.requests = [_Request(f"r{at}") for at in range(REQUESTS)]
        self.kept = Tokens()  # used by requests that ended, and reserved by those that were killed
        self.spent = 0
        self.num_admitted = 0  # whose request stays taken

    def run(self) -> None:
        for _ in range(self.random.randint(4, 20)):
            if not self.still:
                self._pass(self.random.choice((0, 0, 1_000, 700_000, 20_000_000)))
            self._step(self.random.choice(self.requests))
            self._check_places()
        for request in self.requests:  # whoever is left is killed, or ends
            if request.admitted and not request.over:
                (self._crash if self.random.random() < 0.5 else self._end)(request)
        self._check_end()

    def _pass(self, us: int) -> None:
        """Time, in which live workers renew what they hold."""
        self.clock.us += us
        for request in self.requests:
            if request.admitted and not request.over:
                assert now(self.store.renew(self.plan, request.id, places=True))

    def _step(self, request: _Request) -> None:
        if request.killed:
            return
        choice = self.random.random()
        if not request.admitted:
            if not request.over:
                self._admit(request)
        elif request.over:  # late calls: a disconnect after the finish, a counting after the end
            assert now(self.store.settle(self.plan, request.id, Tokens(3, 3), 9)) == (False, None)
            assert now(self.store.reserve(self.plan, request.id, Tokens(5, 5), 5)).state != ADMITTED
            assert not now(self.store.renew(self.plan, request.id, places=True))
        elif request.tokens is None and choice < 0.6:
            self._reserve(request)
        elif choice < 0.7:
            now(self.store.renew(self.plan, request.id, places=True))
        elif choice < 0.85:
            self._crash(request)
        else:
            self._end(request)

    def _admit(self, request: _Request) -> None:
        before = self._picture()
        if now(self.store.admit(self.plan, request.id)).state == REFUSED:
            assert self._picture() == before
            request.over = True
        else:
            request.admitted = True

    def _reserve(self, request: _Request) -> None:
        tokens = Tokens(self.random.randint(1, 30_000), self.random.randint(1, 60_000))
        money = self.random.randint(1, 4 * 10**11)
        if now(self.store.reserve(self.plan, request.id, tokens, money)).state == REFUSED:
            request.admitted, request.over = False, True
        else:
            request.tokens, request.money = tokens, money

    def _end(self, request: _Request) -> None:
        """Finish and disconnect at once: any number of calls, of which one counts."""
        most = request.tokens or Tokens()
        used = Tokens(self.random.randint(0, most.input), self.random.randint(0, most.output))
        money = self.random.randint(0, request.money)
        calls = [
            now(self.store.settle(self.plan, request.id, used, money))[0]
            for _ in range(self.random.randint(1, 3))
        ]
        assert calls == [True] + [False] * (len(calls) - 1)
        request.over = True
        self.num_admitted += 1
        self.spent += money
        if request.tokens is not None:
            self.kept = Tokens(self.kept.input + used.input, self.kept.output + used.output)

    def _crash(self, request: _Request) -> None:
        """Nobody settles it, ever."""
        request.over = request.killed = True
        self.num_admitted += 1
        if request.tokens is not None:
            self.kept = Tokens(
                self.kept.input + request.tokens.input, self.kept.output + request.tokens.output
            )

    def _check_places(self) -> None:
        for lease, running in zip(self.plan.all_leases, self._looked().running, strict=True):
            assert running <= lease.limit

    def _check_end(self) -> None:
        looked = self._looked()
        for bucket, left in zip(self.plan.all_buckets, looked.answer.left, strict=True):
            kept = self.kept.of(bucket.meter)
            if bucket.meter == "requests":
                kept = self.num_admitted
                if bucket.level == "adapter":
                    continue  # taken when the tokens are; counted there
            owed = left.reset_us * bucket.limit / 60_000_000
            assert owed <= kept + 1
            if self.still:
                assert owed >= kept - 1
        self.clock.us += LEASE_US + 1  # the leases of the killed run out
        looked = self._looked()
        assert looked.running == (0,) * len(self.plan.all_leases)
        assert looked.spent == ((self.spent, 0),) * len(self.plan.counters)

    def _looked(self) -> Any:
        return now(self.store.look(self.plan))

    def _picture(self) -> object:
        looked = self._looked()
        return looked.answer.left, looked.running, looked.spent
