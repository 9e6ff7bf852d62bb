"""A client that reads slowly gets several tokens in one chunk, and nothing else differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.core.protocol import (
    AddRequest,
    Ended,
    FinishReason,
    Outcome,
    Ready,
    Sampling,
    StopChoice,
    Tier,
    Timings,
    TokenLogprob,
    Tokens,
    Usage,
)
from engine.core.transport import ServerTransport
from engine.server.answer import AnswerShape, ChatAnswer
from engine.server.chat import Prepared
from engine.server.core_client import ClientLimits, CoreClient
from engine.server.inference import Exchange
from engine.server.metrics import Metrics
from engine.server.transcript import Shape, Transcript
from tests.engine.server.test_detokenize import ByteTable

READY = Ready("base", "digest" * 8, 512, 300, [0], 10, 16, 2, 8, "journal")
ENDED = Ended("r", 1, Outcome.FINISHED, Usage(2, 30, 0), Timings(0.0, 0.0, 1.0, 2.0), Tier.BASE)
TABLE = ByteTable([bytes([byte]) for byte in range(1, 256)])
TEXT = "a slow client reads \N{GRINNING FACE} this and STOP that"


@dataclass
class SlowClient:
    """Takes `quick` messages at once, and the next ones when it is let go."""

    quick: int
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    bodies: list[bytes] = field(default_factory=list)

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])
        if len(self.bodies) >= self.quick:
            await self.go_on.wait()

    def choices(self) -> list[dict[str, Any]]:
        lines = b"".join(self.bodies).split(b"\n\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        return [choice for chunk in chunks for choice in chunk["choices"]]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[CoreClient]:
    transport = ServerTransport(f"ipc://{tmp_path}/core.sock")
    limits = ClientLimits(open_requests=4, unread_tokens=1_000, recent=10, watchers=1, silence_s=30.0)
    core_client = CoreClient(transport, Metrics("base"), limits)
    core_client.ready.set_result(READY)
    yield core_client
    transport.close()


def tokens_of(text: str) -> list[int]:
    return list(text.encode())  # token i stands for byte i


def frames(choice: int) -> list[Tokens]:
    """One a token, as the core sends them."""
    ids = tokens_of(TEXT)
    return [
        Tokens(
            "r",
            1,
            choice,
            [token],
            logprobs=[TokenLogprob(token, -float(index), [])],
            finish=FinishReason.LENGTH if index == len(ids) - 1 else None,
        )
        for index, token in enumerate(ids)
    ]


async def serve(client: CoreClient, slow: SlowClient, *, stops: tuple[str, ...], at_once: int) -> None:
    """Two choices interleaved; the reader gets `at_once` frames between two turns of the event loop."""
    sampling = Sampling(max_tokens=100, seed=1, logprobs=0)
    add = AddRequest(
        "r", 1, "t", "k", None, "", "", [1, 2], sampling, num_choices=2, confirm_choices=bool(stops)
    )
    attempt = client.submit(add)
    shape = AnswerShape("r", "base", "fp", 2, [1, 2], with_token_ids=True, num_logprobs=0)
    transcript = Transcript(Shape(2, stops, 0, [1, 2]), TABLE)
    exchange = Exchange(client, attempt, Prepared(add, True, transcript, ChatAnswer(shape, TABLE)))
    answering = asyncio.create_task(exchange.stream(slow.send))
    both = [frame for pair in zip(frames(0), frames(1), strict=True) for frame in pair]
    for index, frame in enumerate(both):
        client._receive(frame)
        if index % at_once == 0:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    slow.go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)  # the core ends an attempt once its choices are confirmed
    client._receive(ENDED)
    await answering


@pytest.mark.parametrize("stops", [(), ("STOP",), ("no such", "reads \N{GRINNING FACE}")])
async def test_a_slow_client_gets_the_same_answer_in_fewer_chunks(
    client: CoreClient, stops: tuple[str, ...]
) -> None:
    slow = SlowClient(quick=5)
    await serve(client, slow, stops=stops, at_once=1)
    kept = min((TEXT.index(stop) for stop in stops if stop in TEXT), default=len(TEXT))
    ends = min((TEXT.index(stop) + len(stop) for stop in stops if stop in TEXT), default=len(TEXT))
    ids = tokens_of(TEXT[:ends])
    for number in range(2):
        mine = [choice for choice in slow.choices() if choice["index"] == number]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == TEXT[:kept]
        assert [token for choice in mine for token in choice.get("token_ids", [])] == ids
        scored = [one for c in mine if c["logprobs"] for one in c["logprobs"]["content"]]
        assert [one["logprob"] for one in scored] == [-float(i) for i in range(len(ids))]
        assert [one["bytes"] for one in scored] == [[token] for token in ids]
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop" if stops else "length"]
        assert len(mine) < len(ids) / 2, "what waited came together"
    sent = [client._outgoing.get_nowait() for _ in range(client._outgoing.qsize())]
    confirmed = [frame for frame in sent if isinstance(frame, StopChoice)]
    told = sorted((f.choice, f.num_tokens) for f in confirmed)
    assert told == ([(0, len(ids)), (1, len(ids))] if stops else [])


async def test_a_quick_client_gets_each_token_by_itself(client: CoreClient) -> None:
    quick = SlowClient(quick=10_000)
    await serve(client, quick, stops=(), at_once=1)
    told = [c["token_ids"] for c in quick.choices() if c["index"] == 0 and c.get("token_ids")]
    assert told == [[token] for token in tokens_of(TEXT)]
