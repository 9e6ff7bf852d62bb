"""Answers have OpenAI's shape: openai-python's own types decode them, strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engine.core.protocol import Ended, FinishReason, Outcome, Tier, Timings, TokenLogprob, Tokens, Usage
from engine.server import wire
from engine.server.answer import Answer, AnswerShape, ChatAnswer, TextAnswer
from engine.server.token_text import TokenText
from engine.server.transcript import Shape, Transcript
from tests.engine.server.test_detokenize import ByteTable

REQUEST = "0190a1b2"
ENDED = Ended(REQUEST, 1, Outcome.FINISHED, Usage(5, 3, 4), Timings(1.0, 0.0, 2.0, 3.0), Tier.DEVICE)


@pytest.fixture(scope="module")
def table(demo_model_dir: Path) -> TokenText:
    return TokenText(demo_model_dir)


@pytest.fixture(scope="module")
def ids(table: TokenText) -> dict[str, int]:
    return {table.shown(token).decode("utf-8", "replace"): token for token in range(3_000)}


def shape(**extra: Any) -> AnswerShape:
    settings: dict[str, Any] = {"num_choices": 1, "prompt": [7, 8]} | extra
    return AnswerShape(REQUEST, "acme/pirate@3", "fp_0", created=1_700_000_000, **settings)


def scored(token: int, logprob: float = -0.5) -> TokenLogprob:
    return TokenLogprob(token, logprob, [(token, logprob), (token + 1, -2.0)])


def events(data: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def stream(answer: Answer, transcript: Transcript, frames: list[Tokens]) -> bytes:
    parts = [answer.frames(piece, transcript.echo) for frame in frames for piece in transcript.feed(frame)]
    return b"".join(parts) + answer.last_frames(ENDED)


def unary(answer: Answer, transcript: Transcript, frames: list[Tokens]) -> Any:
    for frame in frames:
        for piece in transcript.feed(frame):
            answer.gather(piece, transcript.echo)
    return json.loads(answer.body(ENDED))


def as_completion(body: Any) -> Completion:
    """OpenAI answers null for the first token of an echoed prompt; its own type has no place for it."""
    choices = [choice | {"logprobs": None} for choice in body["choices"]]
    return Completion.model_validate(body | {"choices": choices}, strict=True)


def two_choices(ids: dict[str, int], *, logprobs: bool = False) -> list[Tokens]:
    def frame(choice: int, word: str, finish: FinishReason | None = None) -> Tokens:
        token = ids[word]
        return Tokens(REQUEST, 1, choice, [token], [scored(token)] if logprobs else None, finish)

    return [
        frame(1, "he"),
        frame(0, "is"),
        frame(0, " the", FinishReason.STOP),
        frame(1, " the", FinishReason.LENGTH),
    ]


def test_chat_chunks(table: TokenText, ids: dict[str, int]) -> None:
    answer = ChatAnswer(shape(num_choices=2, with_usage=True), table)
    data = stream(answer, Transcript(Shape(2, (), 0, [7, 8]), table), two_choices(ids))
    assert data.endswith(b"data: [DONE]\n\n")
    raw = events(data)
    chunks = [ChatCompletionChunk.model_validate(event, strict=True) for event in raw]
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {
        ("chatcmpl-0190a1b2", 1_700_000_000, "acme/pirate@3")
    }
    for index, (text, finish) in enumerate([("is the", "stop"), ("he the", "length")]):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert (mine[0].delta.role, mine[0].delta.content) == ("assistant", "")
        assert [choice.finish_reason for choice in mine] == [*[None] * (len(mine) - 1), finish]
        assert "".join(choice.delta.content or "" for choice in mine) == text
        assert mine[-1].delta.content is None
    assert all(event["usage"] is None for event in raw[:-1])
    assert raw[-1]["choices"] == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_usage_is_absent_from_chunks_unless_asked_for(table: TokenText, ids: dict[str, int]) -> None:
    answer = ChatAnswer(shape(num_choices=2), table)
    data = stream(answer, Transcript(Shape(2, (), 0, [7]), table), two_choices(ids))
    assert all("usage" not in event for event in events(data))


@pytest.mark.parametrize("asked", [{}, {"num_logprobs": 2}, {"with_token_ids": True}])
def test_a_stream_says_what_the_body_says(
    asked: dict[str, Any], table: TokenText, ids: dict[str, int]
) -> None:
    frames = two_choices(ids, logprobs="num_logprobs" in asked)
    body = unary(
        ChatAnswer(shape(num_choices=2, **asked), table), Transcript(Shape(2, (), 0, [7]), table), frames
    )
    ChatCompletion.model_validate(body, strict=True)
    data = stream(
        ChatAnswer(shape(num_choices=2, **asked), table), Transcript(Shape(2, (), 0, [7]), table), frames
    )
    for index, whole in enumerate(body["choices"]):
        mine = [c for event in events(data) for c in event["choices"] if c["index"] == index]
        assert "".join(c["delta"].get("content", "") for c in mine) == whole["message"]["content"]
        assert mine[-1]["finish_reason"] == whole["finish_reason"]
        entries = [entry for c in mine if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert entries == (whole["logprobs"]["content"] if whole["logprobs"] else [])
        assert [t for c in mine for t in c.get("token_ids", [])] == whole.get("token_ids", [])
    prompts = [event["prompt_token_ids"] for event in events(data) if "prompt_token_ids" in event]
    assert prompts == ([[7, 8]] if asked.get("with_token_ids") else [])


def test_chat_logprobs_carry_bytes_and_no_infinity(table: TokenText, ids: dict[str, int]) -> None:
    token = ids[" the"]
    frame = Tokens(
        REQUEST,
        1,
        0,
        [token],
        [TokenLogprob(token, float("-inf"), [(token, float("-inf"))])],
        FinishReason.STOP,
    )
    body = unary(ChatAnswer(shape(num_logprobs=1), table), Transcript(Shape(1, (), 0, [7]), table), [frame])
    assert ChatCompletion.model_validate(body, strict=True).choices[0].logprobs is not None
    entry = {"token": " the", "bytes": list(b" the"), "logprob": wire.LEAST_LOGPROB}
    assert body["choices"][0]["logprobs"] == {"content": [entry | {"top_logprobs": [entry]}]}


def test_completion_with_echo_and_logprobs(table: TokenText, ids: dict[str, int]) -> None:
    prompt = [ids["he"], ids[" the"]]
    prompt_scores = [None, scored(prompt[1], -0.25)]
    token = ids["is"]
    frames = [
        # the second choice's first token comes before the prompt's log-probabilities: it waits for them
        Tokens(REQUEST, 1, 1, [token], [scored(token)], FinishReason.STOP),
        Tokens(
            REQUEST,
            1,
            0,
            [token],
            [TokenLogprob(token, -3.0, [(5, -0.1)])],
            FinishReason.STOP,
            None,
            prompt_scores,
        ),
    ]

    def parts() -> tuple[TextAnswer, Transcript]:
        text_shape = Shape(2, (), 0, prompt, "he the", prompt_logprobs=True)
        answer = TextAnswer(shape(num_choices=2, prompt=prompt, num_logprobs=1, with_token_ids=True), table)
        return answer, Transcript(text_shape, table)

    body = unary(*parts(), frames)
    completion = as_completion(body)
    assert completion.id == "cmpl-0190a1b2"
    assert [choice.text for choice in completion.choices] == ["he theis", "he theis"]
    first = body["choices"][0]
    assert first["logprobs"]["tokens"] == ["he", " the", "is"]
    assert first["logprobs"]["token_logprobs"] == [None, -0.25, -3.0]
    assert first["logprobs"]["text_offset"] == [0, 2, 6]
    assert first["logprobs"]["top_logprobs"][0] is None
    assert first["logprobs"]["top_logprobs"][2]["is"] == -3.0
    assert (first["prompt_token_ids"], first["token_ids"]) == (prompt, [token])
    streamed = events(stream(*parts(), frames))
    assert [event["choices"][0]["index"] for event in streamed] == [0, 1]
    for event in streamed:
        as_completion(event)
        choice = event["choices"][0]
        assert choice["logprobs"] == body["choices"][choice["index"]]["logprobs"]


@pytest.mark.parametrize(
    ("text", "offsets"), [("<s>a<s>b", [0, 3, 4, 7]), ("ab", [0, 0, 1, 1]), ("a<s>b", [0, 0, 1, 4])]
)
def test_special_tokens_take_room_in_a_prompt_where_they_are_spelled(text: str, offsets: list[int]) -> None:
    table = ByteTable([b"a", b"b"])
    table._shown = [b"<s>", b"a", b"b"]
    transcript = Transcript(Shape(1, (), 0, [0, 1, 0, 2], text, prompt_logprobs=True), table)
    scores = [None, scored(1), scored(1), scored(1)]
    transcript.feed(Tokens(REQUEST, 1, 0, [1], [scored(1)], None, None, scores))
    assert transcript.echo is not None
    assert transcript.echo.offsets == offsets


def test_an_echoed_prompt_is_scored_once_however_many_choices_it_stands_before() -> None:
    """Else one request with a long prompt would hold up everyone's tokens n times as long."""

    class Counting(ByteTable):
        num_shown = 0

        def shown(self, token: int) -> bytes:
            self.num_shown += 1
            return super().shown(token)

    table, prompt = Counting([b"a", b"b"]), [1, 2] * 50
    scores = [None, *(scored(1) for _ in prompt[1:])]
    for num_choices in (1, 8):
        text_shape = Shape(num_choices, (), 0, prompt, "ab" * 50, prompt_logprobs=True)
        answer = TextAnswer(shape(num_choices=num_choices, prompt=prompt, num_logprobs=2), table)
        last = FinishReason.LENGTH
        frames = [Tokens(REQUEST, 1, choice, [1], [scored(1)], last) for choice in range(1, num_choices)]
        frames.insert(0, Tokens(REQUEST, 1, 0, [1], [scored(1)], last, None, scores))
        table.num_shown = 0
        body = unary(answer, Transcript(text_shape, table), frames)
        assert all(choice["logprobs"] == body["choices"][0]["logprobs"] for choice in body["choices"])
        assert table.num_shown < 5 * len(prompt)


def test_tokens_that_are_no_whole_character_stay_apart(table: TokenText) -> None:
    partial = [token for token in range(table._size) if table.shown(token) in (b"\xf0\x9f", b"\xe2\x80")]
    assert len(partial) == 2
    assert len({wire.text_name(token, table) for token in partial}) == 2


def test_the_trailer_is_the_agreed_json() -> None:
    frame = wire.trailer_frame(ENDED)
    assert frame.startswith(b": motet {")
    assert frame.endswith(b"}\n\n")
    assert json.loads(frame.removeprefix(b": motet ")) == {
        "usage": {"prompt": 5, "completion": 3, "cached": 4},
        "timings": {"queue_ms": 1.0, "load_ms": 0.0, "ttft_ms": 2.0, "total_ms": 3.0},
        "tier": "device",
        "outcome": "finished",
        "reason": "",
    }
