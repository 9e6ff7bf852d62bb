"""Which replicas examine a version, and what their silence means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.proofs.acceptance import Acceptance, Prompt
from gateway.proofs.answering import Examinee
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.registry import Registry, Replica
from gateway.rollouts.examining import MAX_REPLICAS, ReplicaExaminer
from tests.gateway.inference.upstream import TOKEN, Upstream

WHO = Examinee(TenantId(uuid7()), "a" * 64, "support@4", "salt")
HELLO = Acceptance([Prompt("Hello", must_match="llo 世界")])
UNLOADED = (503, {"message": "its file is broken", "code": "adapter_unavailable"})


@pytest.fixture
async def upstreams() -> AsyncIterator[list[Upstream]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Upstream().running()) for _ in range(MAX_REPLICAS + 1)]


@pytest.fixture
async def examiner(upstreams: list[Upstream]) -> AsyncIterator[ReplicaExaminer]:
    async with ReplicaSession(connect_timeout_s=2, max_connections=16) as session:
        registry = Registry([Replica(each.url, MotetDriver(session, each.url, TOKEN)) for each in upstreams])

        async def look() -> int:
            await registry.poll_once()
            return registry.num_healthy

        yield ReplicaExaminer(registry, look)


async def test_the_next_replica_is_asked_when_one_breaks_off(
    examiner: ReplicaExaminer, upstreams: list[Upstream]
) -> None:
    for each in upstreams:
        each.script.cut_before = True
    assert await examiner(WHO, HELLO) is None  # nothing against the version
    assert sum(each.requests > 0 for each in upstreams) == MAX_REPLICAS
    for each in upstreams:
        each.script.cut_before = False
    examined = await examiner(WHO, HELLO)
    assert examined is not None
    assert examined.passed


async def test_what_no_replica_can_load_is_not_passed(
    examiner: ReplicaExaminer, upstreams: list[Upstream]
) -> None:
    for each in upstreams:
        each.script.refuse, each.script.outcome = UNLOADED, "adapter_failed"
    examined = await examiner(WHO, HELLO)
    assert examined is not None
    assert (examined.passed, examined.answers[0].text) == (False, "its file is broken")
    for each in upstreams[1:]:
        each.script.refuse = None
    examined = await examiner(WHO, HELLO)
    assert examined is not None
    assert examined.passed


async def test_only_weights_that_it_was_proved_on_count(
    examiner: ReplicaExaminer, upstreams: list[Upstream]
) -> None:
    assert await examiner(replace(WHO, digests=["e" * 64]), HELLO) is None
    upstreams[2].base_digest = "e" * 64
    assert await examiner(replace(WHO, digests=["e" * 64]), HELLO) is not None
    assert [each.requests for each in upstreams] == [0, 0, 1, 0]
