"""Whatever order tries, retries, finishes, disconnects and crashes come in: a key's answer is one answer, and
of no request two attempts are billed. Redis and its scripts are real; the model beside them says what each
step must find, and stands for the ledger and its reconciler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.answers.shelf import Bounds
from gateway.idempotency.claim import Claim, Claims
from gateway.idempotency.records import Hold, Records, Standing, What
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.redis import connect

STEPS = [
    "claim",
    "claim",
    "claim",
    "finish",
    "finish_and_die",
    "leave",
    "die",
    "stall",
    "renew",
    "forget",
    "reconcile",
]
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 5))
DIGEST, OTHER_DIGEST = b"digest", b"other"


@dataclass
class Ledger:
    """Rows by (request, attempt), true = billed; the reconciler's rule for what a dead worker left."""

    rows: dict[tuple[UUID, int], bool] = field(default_factory=dict)
    markers: set[tuple[UUID, int]] = field(default_factory=set)
    left_behind: set[tuple[UUID, int]] = field(default_factory=set)

    def bills(self, request: UUID) -> int:
        return sum(billed for (row, _), billed in self.rows.items() if row == request)

    def take_over(self, request: UUID, attempt: int) -> bool:
        self.markers.add((request, attempt))
        return self.bills(request) > 0

    def reconcile(self) -> None:
        for request, attempt in sorted(self.left_behind, key=lambda each: -each[1]):
            known = {*self.rows, *self.markers, *self.left_behind}
            latest = max(number for row, number in known if row == request)
            billed = attempt == latest and not self.bills(request)
            self.rows.setdefault((request, attempt), billed)
        self.left_behind.clear()


@dataclass
class Record:
    """What Redis must hold."""

    request: UUID
    generation: int = 1
    state: What = What.RUNNING
    answer: bytes = b""
    in_time: bool = True


class Play:
    """One key, its tries, and who is still alive."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.tenant = TenantId(uuid4())
        self.records = Records(redis, Bounds(10, 10_000, 1_000), lease_s=60)
        self.claims = Claims(self.records, lease_s=60, grace_s=0)
        self.record: Record | None = None
        self.ledger = Ledger()
        self.running: list[Claim] = []
        self.finished = 0

    async def step(self, name: str, number: int) -> None:
        if name in ("claim", "forget", "reconcile"):
            await getattr(self, name)(number)
        elif name == "stall":
            await self.stall()
        elif self.running:
            claim = self.running[number % len(self.running)]
            await getattr(self, name)(claim)

    async def claim(self, number: int) -> None:
        if number == 5:
            found = await self.records.claim(self.tenant, "key", [OTHER_DIGEST, b"x"], uuid7())
            if self.record is not None:
                assert found.what is What.OTHER
                return
            assert found.what is What.NEW  # it is then the key's request, for as long as this test looks
            await self.redis.delete(self._key)
            return
        mine = uuid7()
        digests = [DIGEST] if number % 2 else [b"of a newer key", DIGEST]
        found = await self.records.claim(self.tenant, "key", digests, mine)
        record = self.record
        if record is None:
            assert (found.what, found.request_id, found.generation) == (What.NEW, mine, 1)
            self.record = Record(mine)
            await self.redis.hset(self._key, "digest", DIGEST)
            self._begin(mine, 1, free=False)
        elif record.state is not What.RUNNING:
            assert (found.what, found.sealed) == (record.state, record.answer)
        elif record.in_time:
            assert found.what is What.RUNNING
        else:
            record.generation, record.in_time = record.generation + 1, True
            assert (found.what, found.request_id, found.generation) == (
                What.TAKEN,
                record.request,
                record.generation,
            )
            free = self.ledger.take_over(record.request, (record.generation - 1) * 32)
            self._begin(record.request, record.generation, free=free)

    async def finish(self, claim: Claim) -> None:
        bills = await self._complete(claim)
        self.ledger.rows[self._attempt(claim)] = bills

    async def finish_and_die(self, claim: Claim) -> None:
        await self._complete(claim)
        self.ledger.left_behind.add(self._attempt(claim))

    async def leave(self, claim: Claim) -> None:
        self.running.remove(claim)
        owner = self._owns(claim)
        self.ledger.rows[self._attempt(claim)] = await claim.release()
        if owner:
            self.record = None

    async def die(self, claim: Claim) -> None:
        self.running.remove(claim)
        self.ledger.left_behind.add(self._attempt(claim))

    async def stall(self) -> None:
        """Nobody renews for the length of a lease."""
        for claim in self.running:
            claim.renewed_at -= 60
        if self.record is not None and self.record.state is What.RUNNING:
            await self.redis.hset(self._key, "until", 0)
            self.record.in_time = False

    async def renew(self, claim: Claim) -> None:
        standing, _ = await self.records.renew(claim.hold)
        assert (standing is Standing.OWN) == self._owns(claim)
        await claim.renew()
        if self._owns(claim):
            assert self.record is not None
            self.record.in_time = True

    async def forget(self, number: int) -> None:
        """Redis loses the record: rarely, as it does."""
        if number == 0:
            await self.redis.delete(self._key)
            self.record = None

    async def reconcile(self, _: int) -> None:
        self.ledger.reconcile()

    async def _complete(self, claim: Claim) -> bool:
        self.running.remove(claim)
        self.finished += 1
        answer = f"answer {self.finished}".encode() if self.finished % 5 else None
        owner = self._owns(claim)
        bills = await claim.complete(answer)
        if owner:
            assert self.record is not None
            self.record.state = What.SPENT if answer is None else What.DONE
            self.record.answer = answer or b""
            assert bills is not claim.free
        return bills

    def _begin(self, request: UUID, generation: int, *, free: bool) -> None:
        began = asyncio.get_running_loop().time()
        hold = Hold(self.tenant, "key", request, generation)
        self.running.append(self.claims.open(hold, began, free=free))

    def _owns(self, claim: Claim) -> bool:
        record, hold = self.record, claim.hold
        return (
            record is not None
            and record.state is What.RUNNING
            and (record.request, record.generation) == (hold.request_id, hold.generation)
        )

    @staticmethod
    def _attempt(claim: Claim) -> tuple[UUID, int]:
        return claim.hold.request_id, claim.attempts_after + 1

    @property
    def _key(self) -> str:
        return f"{{{self.tenant}}}:idempotency:key"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=30))
def test_one_answer_and_one_bill(redis_url: str, steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        redis = connect(redis_url)
        game = Play(redis)
        for name, number in steps:
            await game.step(name, number)
        for claim in list(game.running):
            await game.die(claim)
        game.ledger.reconcile()
        requests = {request for request, _ in game.ledger.rows}
        assert all(game.ledger.bills(request) <= 1 for request in requests)
        await redis.aclose()

    asyncio.run(play())
