"""openai-python against a real replica: both endpoints, streaming and not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.engine.server.running_engine import BASE_NAME, DEMO, OWNER, TOKEN, EngineServer

ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
STREAM_USAGE: Any = {"include_usage": True}


@pytest.fixture(scope="module")
def client(engine_server: EngineServer) -> OpenAI:
    return OpenAI(base_url=f"{engine_server.url}/v1", api_key=TOKEN, max_retries=0)


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [BASE_NAME]


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="acme/x@1", messages=ASK, temperature=0, max_tokens=20)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "acme/x@1"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (37, 8)


def test_chat_stream_equals_unary(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="m", messages=ASK, temperature=0, max_tokens=20, stream=True, stream_options=STREAM_USAGE
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.completion_tokens, chunks[-2].choices[0].finish_reason) == (8, "stop")


def test_several_choices_with_one_seed_repeat(client: OpenAI) -> None:
    def sample() -> list[str | None]:
        answer = client.chat.completions.create(model="m", messages=ASK, n=3, seed=-7, max_tokens=8)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 37
        return [choice.message.content for choice in answer.choices]

    first = sample()
    assert first == sample()
    assert len(set(first)) > 1


def test_several_choices_stream_interleaved(client: OpenAI) -> None:
    texts, ends = ["", "", ""], [0, 0, 0]
    for chunk in client.chat.completions.create(
        model="m", messages=ASK, n=3, temperature=0, max_tokens=20, stream=True
    ):
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] += choice.finish_reason is not None
    assert (texts, ends) == ([ANSWER] * 3, [1, 1, 1])


def test_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="m", messages=ASK, temperature=0, max_tokens=3, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [entry.token for entry in logprobs.content] == ["The", " capital", " of"]
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 2
        assert (entry.token, entry.logprob) == (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob)
        assert bytes(entry.bytes or []).decode() == entry.token


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_are_found_across_tokens(
    client: OpenAI, engine_server: EngineServer, stream: bool
) -> None:
    request = "0190aaaa-0000-7000-8000-00000000000" + str(int(stream))
    answer: Any = client.chat.completions.create(
        model="m",
        messages=ASK,
        temperature=0,
        max_tokens=20,
        stop=["pital of Fr", "nothing"],
        stream=stream,
        extra_headers={"x-motet-request": request},
    )
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
    else:
        text = answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "stop"
    assert text == "The ca"
    assert engine_server.line_of(request)["completion"] == 4  # The| capital| of| France


def test_completions_with_echo_and_logprobs(client: OpenAI) -> None:
    answer = client.completions.create(
        model="m", prompt="The capital of France is", temperature=0, max_tokens=2, echo=True, logprobs=1
    )
    choice = answer.choices[0]
    assert choice.text.startswith("The capital of France is")
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset == [0, 3, 11, 14, 21, 24, 24 + len(choice.logprobs.tokens[5])]


def test_completions_from_token_ids_stream(client: OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="m",
            prompt=[504, 3575, 282, 4649, 314],
            temperature=0,
            max_tokens=4,
            stream=True,
            extra_body={"return_token_ids": True},
        )
    )
    dumped = [chunk.model_dump()["choices"][0] for chunk in chunks]
    assert dumped[0]["prompt_token_ids"] == [504, 3575, 282, 4649, 314]
    assert sum(len(choice["token_ids"]) for choice in dumped) == 4
    assert dumped[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["pirate", "shout"])
def test_each_adapter_gives_its_own_answer(client: OpenAI, engine_server: EngineServer, name: str) -> None:
    golden = json.loads((Path(DEMO) / name / "golden.json").read_text())[0]
    answer = client.chat.completions.create(
        model=name,
        messages=[{"role": "user", "content": golden["user"]}],
        temperature=0,
        max_tokens=12,
        extra_body={"return_token_ids": True},
        extra_headers={"x-motet-artefact": engine_server.artefacts[name], "x-motet-owner": OWNER},
    )
    dumped = answer.model_dump()
    assert dumped["prompt_token_ids"] == golden["prompt_token_ids"]
    assert dumped["choices"][0]["token_ids"] == golden["token_ids"][:12]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"temperature": -1}, "temperature", "decimal_below_min_value"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"nonsense": 1}, "nonsense", "unknown_parameter"),
        ({"max_tokens": 1_000}, "messages", "context_length_exceeded"),
        ({"logit_bias": {"49152": 1}}, "logit_bias", "invalid_value"),
        ({"stop_token_ids": [49152]}, "stop_token_ids", "invalid_value"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens", "integer_above_max_value"),
    ],
)
def test_bad_requests_are_named_and_leave_no_trace(
    client: OpenAI, engine_server: EngineServer, body: dict[str, Any], param: str, code: str
) -> None:
    before = len(engine_server.journal())
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=ASK, extra_body=body)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"
    assert len(engine_server.journal()) == before


def test_a_prompt_over_the_context_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="m", prompt="word " * 2_000)
    assert caught.value.code == "context_length_exceeded"


def test_a_missing_adapter_is_503_and_never_the_base(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(
            model="m",
            messages=ASK,
            stream=True,
            extra_headers={"x-motet-artefact": "0" * 64, "x-motet-owner": OWNER},
        )
    assert (caught.value.status_code, caught.value.code) == (503, "adapter_unavailable")
    assert json.loads(caught.value.response.headers["x-motet-trailer"])["outcome"] == "adapter_failed"


def test_without_the_token_nothing_opens(engine_server: EngineServer) -> None:
    stranger = OpenAI(base_url=f"{engine_server.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model="m", messages=ASK)
