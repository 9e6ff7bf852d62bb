"""Acceptance prompts: judged by what they ask for, and asked of whichever replica answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from adapters.patterns import Budget
from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.rollouts.examining import Examinee, ReplicaExaminer, check_prompts, fits, judged
from gateway.rollouts.plan import Acceptance, Prompt

WHO = Examinee(TenantId(uuid7()), "a" * 64, "support@4", "salt")


@pytest.mark.parametrize(
    ("prompt", "text", "wanted"),
    [
        (Prompt(input="x", answer="Hi there"), " Hi there\n", True),
        (Prompt(input="x", answer="Hi"), "Hi there", False),
        (Prompt(input="x", must_match='"label": "(positive|neutral)"'), '{"label": "neutral"}', True),
        (Prompt(input="x", must_match="^positive$"), "positive", True),
        (Prompt(input="x", must_match="n. .a"), "one\nné ça", True),
        (Prompt(input="x", must_match="(a*)*b"), "a" * 5_000, False),
    ],
)
def test_an_answer_fits_or_does_not(prompt: Prompt, text: str, wanted: bool) -> None:
    assert fits(prompt, text, Budget(1_000_000)) is wanted


def test_a_share_of_the_prompts_may_be_enough() -> None:
    prompts = [Prompt(input=str(n), answer=str(n)) for n in range(4)]
    half = judged(Acceptance(prompts=prompts, minimum_share=0.5), ["0", "1", "no", "no"])
    all_of_them = judged(Acceptance(prompts=prompts), ["0", "1", "no", "no"])
    assert (half.passed, all_of_them.passed, half.num_passed) == (True, False, 2)
    assert all_of_them.failed == {"wanted": "2", "answered": "no"}


def test_prompts_that_can_not_be_judged_are_refused() -> None:
    for prompt in (
        Prompt(input="x"),
        Prompt(input="x", answer="a", must_match="a"),
        Prompt(input="x", must_match="(?=a)"),
    ):
        with pytest.raises(BadRequest):
            check_prompts(Acceptance(prompts=[prompt]))


class Replica:
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.status = 200
        self.body: dict[str, Any] = {"choices": [{"message": {"content": "Hi"}}]}
        self.seen: list[tuple[Mapping[str, str], dict[str, Any]]] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append((request.headers, await request.json()))
        return web.json_response(self.body, status=self.status)


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    made = Replica()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def test_a_version_is_examined_like_any_request_and_for_nothing(replica: Replica) -> None:
    acceptance = Acceptance(prompts=[Prompt(input="Hello", answer="Hi")])
    async with ReplicaSession(connect_timeout_s=2, max_connections=4) as session:
        examiner = ReplicaExaminer(lambda: [MotetDriver(session, f"http://127.0.0.1:{replica.port}", "t")])
        examined = await examiner(WHO, acceptance)
        assert examined is not None
        assert examined.passed
        headers, body = replica.seen[0]
        assert (headers["x-motet-purpose"], headers["x-motet-class"]) == ("proof", "batch")
        assert (headers["x-motet-artefact"], headers["x-motet-salt"]) == (WHO.artefact, "salt")
        assert (body["temperature"], body["messages"]) == (0, [{"role": "user", "content": "Hello"}])
        replica.status, replica.body = 503, {"error": {"code": "replica_busy", "message": "full"}}
        assert await examiner(WHO, acceptance) is None  # nothing against the version
        replica.body = {"error": {"code": "adapter_unavailable", "message": "not finite"}}
        broken = await examiner(WHO, acceptance)
        assert broken is not None
        assert not broken.passed
        assert len(json.dumps(broken.failed)) < 1_000
