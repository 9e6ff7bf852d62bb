"""openai-python against both endpoints: an unmodified SDK, only `base_url` and `api_key` are ours."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


def chat(sdk: OpenAI, **fields: object) -> openai.types.chat.ChatCompletion:
    body = {"model": "pirate", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, **fields}
    return sdk.chat.completions.create(**body)  # type: ignore[call-overload, no-any-return]


def stream_text(sdk: OpenAI, **fields: object) -> str:
    body = {"model": "pirate", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, **fields}
    chunks = sdk.chat.completions.create(stream=True, **body)  # type: ignore[call-overload]
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_a_chat_answer_has_every_field_of_openais(sdk: OpenAI) -> None:
    answer = chat(sdk)
    assert answer.object == "chat.completion"
    assert answer.model == "pirate"
    assert answer.id
    assert answer.created > 1_700_000_000
    (choice,) = answer.choices
    assert (choice.index, choice.message.role) == (0, "assistant")
    assert choice.finish_reason in ("stop", "length")
    assert choice.message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 <= answer.usage.completion_tokens <= 8


def test_a_stream_says_what_the_whole_answer_says(sdk: OpenAI) -> None:
    assert stream_text(sdk) == chat(sdk).choices[0].message.content


def test_a_streams_frames_are_openais(sdk: OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="pirate",
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert len(finishes) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens <= 4
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_completions_take_text_and_token_ids(sdk: OpenAI) -> None:
    text = sdk.completions.create(model="pirate", prompt="The sea is", max_tokens=6, temperature=0)
    assert text.object == "text_completion"
    assert text.choices[0].text
    ids = sdk.completions.create(
        model="pirate",
        prompt="The sea is",
        max_tokens=6,
        temperature=0,
        extra_body={"return_token_ids": True},
    )
    extra = ids.choices[0].model_extra or {}
    assert extra["token_ids"]
    again = sdk.completions.create(
        model="pirate", prompt=extra["prompt_token_ids"], max_tokens=6, temperature=0
    )
    assert again.choices[0].text == text.choices[0].text


def test_completions_stream(sdk: OpenAI) -> None:
    whole = sdk.completions.create(model="pirate", prompt="The sea is", max_tokens=6, temperature=0)
    parts = sdk.completions.create(
        model="pirate", prompt="The sea is", max_tokens=6, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in parts if chunk.choices) == whole.choices[0].text


def test_n_choices_have_their_own_index_and_end(sdk: OpenAI) -> None:
    answer = chat(sdk, n=3, temperature=1, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert all(choice.finish_reason in ("stop", "length") for choice in answer.choices)
    greedy = chat(sdk, n=2)
    assert len({choice.message.content for choice in greedy.choices}) == 1
    stream = sdk.chat.completions.create(
        model="pirate", messages=[{"role": "user", "content": "Hi"}], n=2, max_tokens=4, stream=True
    )
    ends = [choice.index for c in stream for choice in c.choices if choice.finish_reason]
    assert sorted(ends) == [0, 1]


def test_the_usage_of_n_choices_counts_the_prompt_once(sdk: OpenAI) -> None:
    """Streamed and whole, and as many tokens as the choices have."""
    fields = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 6, "extra_body": {"return_token_ids": True}}
    whole = chat(sdk, **fields)
    alone = chat(sdk)
    assert whole.usage is not None
    assert alone.usage is not None
    stream = sdk.chat.completions.create(  # type: ignore[call-overload]
        model="pirate", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **fields
    )
    chunks = list(stream)
    streamed = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(streamed) == 1
    assert chunks[-1].choices == []
    ids = [(choice.model_extra or {}).get("token_ids") or [] for chunk in chunks for choice in chunk.choices]
    for usage in (whole.usage, streamed[0]):
        assert usage.prompt_tokens == alone.usage.prompt_tokens
        assert usage.completion_tokens == sum(map(len, ids))
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert sum(len((choice.model_extra or {})["token_ids"]) for choice in whole.choices) == sum(map(len, ids))


def test_a_seed_repeats_its_draws(sdk: OpenAI) -> None:
    first, again, other = (
        chat(sdk, temperature=1.5, seed=seed, max_tokens=16).choices[0].message.content for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_logprobs_are_log_probabilities_best_first(sdk: OpenAI) -> None:
    logprobs = chat(sdk, logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    for token in logprobs.content:
        tops = [top.logprob for top in token.top_logprobs]
        assert len(tops) == 3
        assert tops == sorted(tops, reverse=True)
        assert token.logprob == pytest.approx(tops[0], abs=1e-6)  # greedy
        assert bytes(token.bytes or []).decode("utf-8", "replace") or token.token == ""
    completion = sdk.completions.create(model="pirate", prompt="The", max_tokens=2, temperature=0, logprobs=2)
    assert completion.choices[0].logprobs is not None
    assert completion.choices[0].logprobs.token_logprobs is not None
    assert all(p <= 0 for p in completion.choices[0].logprobs.token_logprobs)


def test_a_stop_string_ends_the_answer_and_is_not_in_it(sdk: OpenAI) -> None:
    whole = chat(sdk, max_tokens=24).choices[0].message.content or ""
    stop = whole.split()[3]
    cut = chat(sdk, max_tokens=24, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.message.content == whole[: whole.index(stop)]
    assert stream_text(sdk, max_tokens=24, stop=[stop]) == cut.message.content


def test_models_lists_the_base_and_the_tenants_own(sdk: OpenAI, base_model: str) -> None:
    listed = {model.id for model in sdk.models.list()}
    assert {base_model, "pirate", "sentiment-json"} <= listed
    assert not {"shout", "triage"} & listed
    assert sdk.models.retrieve("pirate").owned_by == "acme"
    assert sdk.models.retrieve("pirate@1").id == "pirate@1"
    assert sdk.models.retrieve(base_model).id == base_model


def test_errors_are_the_sdks_own_classes(sdk: OpenAI, base_url: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        chat(sdk, model="nothing")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert missing.value.request_id
    with pytest.raises(openai.BadRequestError) as bad:
        chat(sdk, temperature=9)
    assert bad.value.param == "temperature"
    with (
        OpenAI(base_url=f"{base_url}/v1", api_key="mt_wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as unknown,
    ):
        chat(stranger)
    assert unknown.value.code == "invalid_api_key"
