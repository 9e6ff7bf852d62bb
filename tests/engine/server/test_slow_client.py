"""A client that reads slowly gets several tokens in one chunk, and nothing else differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.core.backlog import merge_tokens
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
from engine.server.errors import EngineError
from engine.server.inference import MAX_CHUNK_TOKENS, MAX_WRITE_BYTES, Exchange
from engine.server.metrics import Metrics
from engine.server.transcript import ChoiceEnds, Shape, Transcript, cut_frame
from engine.server.wire import trailer
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


def begin(client: CoreClient, stops: tuple[str, ...] = ()) -> Exchange:
    """A request for two choices."""
    sampling = Sampling(max_tokens=100, seed=1, logprobs=0)
    add = AddRequest(
        "r", 1, "t", "k", None, "", "", [1, 2], sampling, num_choices=2, confirm_choices=bool(stops)
    )
    text, shape = Shape(2, stops, 0, [1, 2]), AnswerShape("r", "base", "fp", 2, [1, 2], False, True, 0)
    ends = ChoiceEnds(text, TABLE) if stops else None
    attempt = client.submit(add, ends)
    prepared = Prepared(add, True, Transcript(text, TABLE), ends, ChatAnswer(shape, TABLE))
    return Exchange(attempt, prepared)


async def serve(
    client: CoreClient, slow: SlowClient, *, stops: tuple[str, ...], at_once: int
) -> list[StopChoice]:
    """Two choices interleaved; the reader gets `at_once` frames between two turns of the event loop. Returns
    what the core is told before the client goes on reading."""
    answering = asyncio.create_task(begin(client, stops).stream(slow.send))
    both = [frame for pair in zip(frames(0), frames(1), strict=True) for frame in pair]
    for index, frame in enumerate(both):
        client._receive(frame)
        if index % at_once == 0:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    sent = [client._outgoing.get_nowait() for _ in range(client._outgoing.qsize())]
    client._receive(ENDED)  # the core ends an attempt once its choices are confirmed
    slow.go_on.set()
    await answering
    return [frame for frame in sent if isinstance(frame, StopChoice)]


@pytest.mark.parametrize("stops", [(), ("STOP",), ("no such", "reads \N{GRINNING FACE}")])
async def test_a_slow_client_gets_the_same_answer_in_fewer_chunks(
    client: CoreClient, stops: tuple[str, ...]
) -> None:
    slow = SlowClient(quick=5)
    confirmed = await serve(client, slow, stops=stops, at_once=1)
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
    told = sorted((f.choice, f.num_tokens) for f in confirmed)
    assert told == ([(0, len(ids)), (1, len(ids))] if stops else [])


async def test_a_quick_client_gets_each_token_by_itself(client: CoreClient) -> None:
    quick = SlowClient(quick=10_000)
    await serve(client, quick, stops=(), at_once=1)
    told = [c["token_ids"] for c in quick.choices() if c["index"] == 0 and c.get("token_ids")]
    assert told == [[token] for token in tokens_of(TEXT)]


async def test_however_many_tokens_gathered_a_chunk_and_a_write_are_bounded(client: CoreClient) -> None:
    slow = SlowClient(quick=9_999)
    count = 3 * MAX_CHUNK_TOKENS + 1
    scored = [TokenLogprob(1, -float(index), [(1, -1.0)] * 20) for index in range(count)]
    exchange = begin(client)
    client._receive(Tokens("r", 1, 0, [1] * count, scored, FinishReason.LENGTH))
    client._receive(ENDED)
    await exchange.stream(slow.send)
    chunks = slow.choices()
    sizes = [len(chunk["token_ids"]) for chunk in chunks if chunk.get("token_ids")]
    assert sizes == [MAX_CHUNK_TOKENS] * 3 + [1]
    told = [one["logprob"] for chunk in chunks if chunk["logprobs"] for one in chunk["logprobs"]["content"]]
    assert told == [one.logprob for one in scored]
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    largest = max(len(event) for event in b"".join(slow.bodies).split(b"\n\n"))
    assert max(map(len, slow.bodies)) < MAX_WRITE_BYTES + 2 * largest


@pytest.mark.parametrize("most", [1, 2, 5, 6, 100])
def test_a_frame_in_parts_says_the_same(most: int) -> None:
    scored = [TokenLogprob(token, -1.0, []) for token in range(5)]
    frame = Tokens("r", 1, 0, list(range(5)), scored, FinishReason.STOP, 4, [None, scored[0]])
    parts = list(cut_frame(frame, most))
    assert [len(part.tokens) for part in parts[:-1]] == [most] * (len(parts) - 1)
    assert merge_tokens(parts) == frame


async def test_an_answer_that_lost_tokens_ends_with_an_error_though_the_core_finished_it(
    client: CoreClient,
) -> None:
    slow = SlowClient(quick=1)
    answering = asyncio.create_task(begin(client).stream(slow.send))
    client._receive(frames(0)[0])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slow.bodies
    too_many = [1] * (client._limits.unread_tokens + 1)
    client._receive(Tokens("r", 1, 0, too_many, finish=FinishReason.LENGTH))
    client._receive(ENDED)
    slow.go_on.set()
    await answering
    assert b"[DONE]" not in b"".join(slow.bodies)
    error, told = slow.bodies[-1].rstrip().split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "slow_reader"
    assert json.loads(told.removeprefix(b": motet "))["usage"]["completion"] == ENDED.usage.completion


async def test_a_whole_answer_that_lost_tokens_is_an_error(client: CoreClient) -> None:
    exchange = begin(client)
    client._receive(Tokens("r", 1, 0, [1] * (client._limits.unread_tokens + 1), finish=FinishReason.LENGTH))
    client._receive(ENDED)
    with pytest.raises(EngineError) as raised:
        await exchange.unary(SlowClient(quick=9).send)
    assert (raised.value.code, raised.value.trailer) == ("slow_reader", trailer(ENDED))


async def test_a_frame_that_can_not_be_sent_ends_the_conversation(client: CoreClient) -> None:
    """Else the server would go on to hear its core, look well, and hold each request for ever."""
    add = begin(client)._attempt.add
    client._send(msgspec.structs.replace(add, deadline_ms=2**80))
    with pytest.raises(OverflowError):
        await asyncio.wait_for(client.run(), 5)
